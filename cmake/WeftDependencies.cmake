# The libraries that weft is built on, as targets: weft_dependencies, and weft_data_dependencies of
# data sets and tokenizers. All of them come with the distribution; scripts/setup installs them.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(dnnl 2.6 REQUIRED) # oneDNN, 3.x too
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka) # tests only

add_library(weft_dependencies INTERFACE)
target_link_libraries(weft_dependencies INTERFACE Threads::Threads DNNL::dnnl
  PkgConfig::HWLOC PkgConfig::JANSSON PkgConfig::SODIUM ${CMAKE_DL_LIBS} m)

# The same by their names, for programs that link the static library elsewhere.
set(WEFT_STATIC_LIBRARIES dnnl hwloc jansson sodium pthread ${CMAKE_DL_LIBS} m)

if(WEFT_DATA)
  find_package(ZLIB REQUIRED)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
  pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
  add_library(weft_data_dependencies INTERFACE)
  target_link_libraries(weft_data_dependencies INTERFACE Threads::Threads ZLIB::ZLIB
    PkgConfig::JANSSON PkgConfig::SODIUM PkgConfig::PCRE2 PkgConfig::JPEG PkgConfig::PNG m)
  set(WEFT_DATA_STATIC_LIBRARIES pcre2-8 jpeg png z)
endif()
