# Tests register themselves: every tests/*.c with cases and every tests/*.sh is one, named like
# the file. One program, tests/run, has all files without a main. They run in the root of the repository, with in their environment
#   WEFT         the command line program        WEFT_SOURCE  the root of the repository
#   WEFT_BUILD   the build folder                CC           the compiler
# A test that cannot run here prints why and exits with 77: it counts as skipped.
# Labels, in a test's first comment, "label: once alone":
#   serial  no threads meet in it, or only as in other tests: the thread sanitizer leaves it out
#   once    a sanitizer would learn nothing from it, or only as from other tests: both leave it out
#   full    runs with WEFT_TEST_FULL=1 only
#   alone   needs the machine for itself: no other test runs meanwhile
#   long    takes the longest: begins before the others
#   stand_in  finds tests/stand_in in the place of CUDA's driver and compiler; the address sanitizer
#           runs it with WEFT_TEST_FULL=1 only

enable_testing()
# `tests` builds what scripts/run-tests runs, tests_full what it runs with WEFT_TEST_FULL=1.
add_custom_target(tests DEPENDS weft_cli)
add_custom_target(tests_full DEPENDS tests)
add_custom_target(fuzzers)

# Several tests share the cores, so OpenMP's threads had better not spin for long.
set(test_environment GOMP_SPINCOUNT=1000 WEFT=${PROJECT_BINARY_DIR}/weft WEFT_SOURCE=${PROJECT_SOURCE_DIR}
  WEFT_BUILD=${PROJECT_BINARY_DIR} CC=${CMAKE_C_COMPILER}
  # On a slow machine no line about waiting comes into what tests read; those of the line itself set less.
  WEFT_STALL_MS=120000
  # What is compiled for OpenCL devices is kept for the next test.
  XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/cache POCL_CACHE_DIR=${PROJECT_BINARY_DIR}/cache/pocl
  # PoCL compiles each kernel once, not again for the size of its groups.
  POCL_WORK_GROUP_SPECIALIZATION=0 POCL_WORK_GROUP_METHOD=loops)
# Seconds after which a test is taken to hang: on the slowest and busiest machine none takes half as long.
set(timeout 1800)
if(WEFT_SANITIZE MATCHES "thread")
  # The sanitizer sees weft's code, not that of libraries which were built without it: what
  # those do with each other (OpenMP's workers above all) looks like races and is none.
  list(APPEND test_environment OMP_NUM_THREADS=1
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1")
  math(EXPR timeout "${timeout} * 4")
elseif(WEFT_SANITIZE)
  list(APPEND test_environment UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1)
  math(EXPR timeout "${timeout} * 2")
endif()

# Registers the test `name`, whose source says which labels it has beside those given, and which is built
# by `target`, if it is a program.
function(weft_register name source)
  cmake_parse_arguments(test "" "TARGET" "LABELS" ${ARGN})
  file(STRINGS ${source} line REGEX "^( \\*|#) *label: *[a-z_ ]+$" LIMIT_COUNT 1)
  string(REGEX REPLACE ".*label: *" "" labels "${line}")
  separate_arguments(labels)
  list(APPEND labels ${test_LABELS})
  set(environment ${test_environment})
  if("stand_in" IN_LIST labels)
    list(APPEND environment LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/stand_in)
  endif()
  # ctest gets those that it is asked for: with labels its last lines are a table of them, not what failed.
  set(selects ${labels})
  if(NOT WEFT_SANITIZE)
    list(FILTER selects INCLUDE REGEX "^(alone|full)$")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77
    LABELS "${selects}" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} ENVIRONMENT "${environment}")
  if("alone" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  if("long" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES COST 1)
  endif()
  # scripts/run-tests leaves out the others.
  if(test_TARGET AND NOT (WEFT_SANITIZE AND "once" IN_LIST labels) AND
     NOT (WEFT_SANITIZE MATCHES "thread" AND "serial" IN_LIST labels))
    if("full" IN_LIST labels OR (WEFT_SANITIZE MATCHES "address" AND "stand_in" IN_LIST labels))
      add_dependencies(tests_full ${test_TARGET})
    else()
      add_dependencies(tests ${test_TARGET})
    endif()
    if(test_TARGET STREQUAL "test_run")
      target_sources(test_run PRIVATE ${source})
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS TEST_IN_RUN)
    endif()
  endif()
endfunction()

# Adds a program of the build folder's `folder` that is not built by default.
function(weft_add_test_program target name folder)
  add_executable(${target} EXCLUDE_FROM_ALL ${ARGN})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
  # Callbacks, and tests by cmocka; fields that differ from defaults.
  target_compile_options(${target} PRIVATE -Wno-unused-parameter -Wno-override-init)
  if(NOT WEFT_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>) # they run for seconds
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE weft_cli_static)
endfunction()

# ---- libraries that stand in for those of GPUs: found by tests with the label stand_in ----

# weft's kernels for GPUs, as C.
set(includes "#include \"kernels.h\"\n")
foreach(source IN LISTS WEFT_GPU_SOURCES)
  string(APPEND includes "#include \"${source}\"\n")
endforeach()
set(kernels ${PROJECT_BINARY_DIR}/stand_in_kernels.c)
file(CONFIGURE OUTPUT ${kernels} CONTENT "${includes}" @ONLY)
# Stacks that change are none of the address sanitizer's business; a barrier is no race.
set_source_files_properties(${kernels} ${PROJECT_SOURCE_DIR}/tests/stand_in/groups.c PROPERTIES
  COMPILE_OPTIONS "-O2;-w;$<$<BOOL:${WEFT_SANITIZE}>:-fno-sanitize=address,undefined>")

# Adds the library whose file has that name.
function(weft_add_stand_in target file)
  add_library(${target} SHARED ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/stand_in)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/stand_in
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} PRIVATE m Threads::Threads)
  if(WEFT_SANITIZE MATCHES "address")
    add_dependencies(tests_full ${target})
  else()
    add_dependencies(tests ${target})
  endif()
endfunction()
weft_add_stand_in(stand_in_cuda libcuda.so.1 ${PROJECT_SOURCE_DIR}/tests/stand_in/cuda.c
  ${PROJECT_SOURCE_DIR}/tests/stand_in/groups.c ${kernels})
weft_add_stand_in(stand_in_nvrtc libnvrtc.so.13 ${PROJECT_SOURCE_DIR}/tests/stand_in/nvrtc.c)
weft_add_stand_in(stand_in_cublaslt libcublasLt.so.13 ${PROJECT_SOURCE_DIR}/tests/stand_in/cublaslt.c)
weft_add_stand_in(stand_in_cudnn libcudnn.so.9 ${PROJECT_SOURCE_DIR}/tests/stand_in/cudnn.c)
weft_add_stand_in(stand_in_nccl libnccl.so.2 ${PROJECT_SOURCE_DIR}/tests/stand_in/nccl.c)
foreach(library IN ITEMS stand_in_cublaslt stand_in_cudnn stand_in_nccl) # they queue on the driver's streams
  target_link_libraries(${library} PRIVATE stand_in_cuda)
endforeach()

# ---- tests in C ----

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.c)
if(NOT CMOCKA_FOUND)
  message(STATUS "cmocka is missing: the tests written in C are left out")
  set(sources "")
endif()
if(sources)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/tests/run.c)
  weft_add_test_program(test_run run tests ${PROJECT_SOURCE_DIR}/tests/run.c)
  target_link_libraries(test_run PRIVATE PkgConfig::CMOCKA)
endif()
foreach(source IN LISTS sources)
  file(STRINGS ${source} main REGEX "^(int main|TEST[A-Z_]*)\\(")
  get_filename_component(name ${source} NAME_WE)
  if(main MATCHES "int main")
    weft_add_test_program(test_${name} ${name} tests ${source})
    target_link_libraries(test_${name} PRIVATE PkgConfig::CMOCKA)
    if(name MATCHES "cuda")
      # So that `ctest -R cuda` says of a build what it can do with GPUs.
      set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL OFF)
    endif()
    add_test(NAME ${name} COMMAND test_${name})
    weft_register(${name} ${source} TARGET test_${name})
  elseif(main)
    add_test(NAME ${name} COMMAND test_run ${name})
    weft_register(${name} ${source} TARGET test_run)
  endif()
endforeach()

# ---- tests as scripts ----

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.sh)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  add_test(NAME ${name} COMMAND bash ${source})
  weft_register(${name} ${source})
endforeach()

# ---- fuzz targets: with WEFT_FUZZ they search, else their corpus is replayed ----

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(source IN LISTS sources)
  get_filename_component(target ${source} NAME_WE)
  string(REPLACE "fuzz_" "" name ${target})
  if(WEFT_FUZZ)
    weft_add_test_program(${target} ${target} fuzz ${source})
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    weft_add_test_program(${target} ${target} fuzz ${source} ${PROJECT_SOURCE_DIR}/fuzz/replay.c)
    add_test(NAME ${target} COMMAND ${target} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
    weft_register(${target} ${source} TARGET ${target} LABELS serial)
  endif()
  add_dependencies(fuzzers ${target})
endforeach()
