# What weft is built on, as one target: weft_dependencies. All of it comes with the
# distribution; scripts/setup installs it.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(dnnl 2.6 REQUIRED) # oneDNN, 3.x too
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka) # tests only

add_library(weft_dependencies INTERFACE)
target_link_libraries(weft_dependencies INTERFACE Threads::Threads ZLIB::ZLIB DNNL::dnnl
  PkgConfig::HWLOC PkgConfig::JANSSON PkgConfig::SODIUM PkgConfig::PCRE2
  PkgConfig::JPEG PkgConfig::PNG ${CMAKE_DL_LIBS} m)

# The same by their names, for who links the static library elsewhere.
set(WEFT_STATIC_LIBRARIES dnnl hwloc jansson sodium pcre2-8 jpeg png z pthread ${CMAKE_DL_LIBS} m)
