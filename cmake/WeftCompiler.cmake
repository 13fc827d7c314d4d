# Options, and the flags that every file of weft is compiled and linked with.

# Warnings stop our own build, where we know that there are none: with the compilers of CI.
set(werror_default OFF)
if(NOT WEFT_LIBRARY_ONLY AND
   "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}" MATCHES "^(GNU 12|Clang 14)\\.")
  set(werror_default ON)
endif()
option(WEFT_WERROR "Treat warnings as errors" ${werror_default})
set(WEFT_SANITIZE "" CACHE STRING "Sanitizers, separated by semicolons: address;undefined or thread")
option(WEFT_FUZZ "Build the fuzz targets (needs clang)" OFF)
option(WEFT_STRIP "Install without debug information" ON)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
if(WEFT_FUZZ)
  set(WEFT_SANITIZE "address;undefined")
endif()
# Assertions stay: they look after our own rules. Sanitizers find the same in code that took half the
# time to compile; their reports need lines, not variables.
if(WEFT_SANITIZE)
  set(CMAKE_C_FLAGS_RELEASE "-O1 -g1")
else()
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
  set(WEFT_LOOP_OPTIONS -O3)
endif()
list(APPEND WEFT_LOOP_OPTIONS -fno-math-errno)
if(WEFT_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # Loops have vectors on the stack, which GCC before 14 misaligns where it is checked for use after
  # return (its bug 110027).
  list(APPEND WEFT_LOOP_OPTIONS --param=asan-use-after-return=0)
endif()
set(CMAKE_C_VISIBILITY_PRESET hidden)
add_compile_options(-fno-semantic-interposition) # calls within a library stay in it
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_definitions(_GNU_SOURCE)

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith)
if(WEFT_WERROR AND NOT WEFT_SANITIZE) # what sanitizers insert makes gcc warn where nothing is wrong
  add_compile_options(-Werror)
endif()

# Our own kernels give the same bits everywhere: no contraction, no fast math.
add_compile_options(-ffp-contract=off -fno-fast-math)

# The same files come out of any folder: sources are named as from the root.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=./build)

# Hardening.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
add_compile_options(-fstack-protector-strong)
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack -Wl,--as-needed)
# Tables of names are pointers, which the loader relocates: packed, the list of them is small.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LINK_OPTIONS -Wl,-z,pack-relative-relocs)
check_c_source_compiles("#include <features.h>
#if !__GLIBC_PREREQ(2, 36)
#error the loader does not read packed relocations
#endif
int main(void) { return 0; }" WEFT_PACKS_RELOCATIONS)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
if(WEFT_PACKS_RELOCATIONS)
  add_link_options(-Wl,-z,pack-relative-relocs)
endif()
if(WEFT_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WEFT_FUZZ needs clang: configure with CC=clang (scripts/setup --fuzz installs it)")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(WEFT_SANITIZE)
  string(REPLACE ";" "," sanitizers "${WEFT_SANITIZE}")
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizers})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(NOT WEFT_SANITIZE)
  set(CMAKE_SHARED_LINKER_FLAGS "${CMAKE_SHARED_LINKER_FLAGS} -Wl,--no-undefined")
endif()

# Programs run where they are built and where they are installed.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
