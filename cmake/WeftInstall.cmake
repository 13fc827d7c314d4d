# cmake --install build --prefix DIR                      the libraries, their headers and the program
# cmake --install build --prefix DIR --component static   the static libraries: larger than all the rest

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
set(generated ${PROJECT_BINARY_DIR}/package)

if(WEFT_STRIP)
  install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)")
endif()
set(libraries weft)
if(WEFT_DATA)
  list(APPEND libraries weft_data)
endif()
install(TARGETS ${libraries} EXPORT weftTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# find_package(weft) -> weft::weft and weft::data; weft::static and weft::data_static if that component
# is installed
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weftConfig.cmake.in
  ${generated}/weftConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${generated}/weftConfigVersion.cmake
  COMPATIBILITY SameMinorVersion) # until 1.0 every minor version may change the interface
install(FILES ${generated}/weftConfig.cmake ${generated}/weftConfigVersion.cmake
  DESTINATION ${package_dir})

# The static libraries have a folder of their own, so that a link line can choose them by -L (weft.pc.in).
set(static_dir ${CMAKE_INSTALL_LIBDIR}/weft)
list(TRANSFORM libraries APPEND _static OUTPUT_VARIABLE archives)
install(TARGETS ${archives} EXPORT weftStaticTargets ARCHIVE DESTINATION ${static_dir}
  COMPONENT static EXCLUDE_FROM_ALL)
install(EXPORT weftStaticTargets NAMESPACE weft:: DESTINATION ${package_dir}
  COMPONENT static EXCLUDE_FROM_ALL)
if(WEFT_STRIP) # CMake does not strip archives
  foreach(archive IN LISTS archives)
    install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${static_dir}/$<TARGET_FILE_NAME:${archive}>\")"
      COMPONENT static EXCLUDE_FROM_ALL)
  endforeach()
endif()

# pkg-config weft, weft-data
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
function(weft_install_pc pc_name pc_requires)
  list(TRANSFORM ARGN PREPEND -l OUTPUT_VARIABLE pc_private)
  list(JOIN pc_private " " pc_private)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${generated}/${pc_name}.pc @ONLY)
  install(FILES ${generated}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
weft_install_pc(weft weft-path ${WEFT_STATIC_LIBRARIES})
if(WEFT_DATA)
  weft_install_pc(weft-data weft ${WEFT_DATA_STATIC_LIBRARIES})
endif()
set(pc_rpath "")
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft-path.pc.in ${generated}/system/weft-path.pc @ONLY)
set(pc_rpath " -Wl,-rpath,\${libdir}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft-path.pc.in ${generated}/own/weft-path.pc @ONLY)

# The loader finds libraries in the system's prefixes by its cache, which has to be renewed; those
# anywhere else by the path that pkg-config's flags put into programs.
install(CODE "set(libdir \"${CMAKE_INSTALL_LIBDIR}\")
set(generated \"${generated}\")")
install(CODE [[
set(kind own)
if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$")
  set(kind system)
endif()
file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${libdir}/pkgconfig" TYPE FILE
  FILES "${generated}/${kind}/weft-path.pc")
if(kind STREQUAL "system" AND "$ENV{DESTDIR}" STREQUAL "")
  find_program(LDCONFIG ldconfig HINTS /sbin /usr/sbin)
  if(LDCONFIG)
    execute_process(COMMAND "${LDCONFIG}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  endif()
  if(NOT LDCONFIG OR failed)
    message("-- The loader does not know the library yet: run ldconfig as root")
  endif()
endif()
]])

# The program, the man page that it prints of its table of options, and the completion.
if(WEFT_DATA)
  install(TARGETS weft_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(WEFT_DATA AND NOT WEFT_SANITIZE)
  add_custom_command(OUTPUT ${generated}/weft.1.gz DEPENDS weft_cli VERBATIM
    COMMAND weft_cli help --man > ${generated}/weft.1 COMMAND gzip -9nf ${generated}/weft.1)
  add_custom_target(weft_help ALL DEPENDS ${generated}/weft.1.gz)
  install(FILES ${generated}/weft.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  set(completion ${PROJECT_SOURCE_DIR}/cli/completion)
  install(FILES ${completion}/weft.bash RENAME weft
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${completion}/weft.zsh RENAME _weft
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${completion}/weft.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# The headers as manual pages.
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/weft/*.h)
add_custom_command(OUTPUT ${generated}/man3/weft_weft.3.gz VERBATIM
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/man3 ${generated}/man3
  DEPENDS ${PROJECT_SOURCE_DIR}/scripts/man3 ${headers})
add_custom_target(weft_man ALL DEPENDS ${generated}/man3/weft_weft.3.gz)
install(DIRECTORY ${generated}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR})

# What weft bench runs: scripts of its rows, and peers. It finds them from its own place.
file(GLOB WEFT_CASES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/cases/*.py)
install(FILES ${WEFT_CASES} DESTINATION share/weft/cases)
file(GLOB WEFT_PEERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/peers/*.py
  ${PROJECT_SOURCE_DIR}/bench/peers/*.c)
install(FILES ${WEFT_PEERS} DESTINATION share/weft/peers)

# cpack -G DEB --config build/CPackConfig.cmake, or make deb: all libraries, headers and program in
# one package, which depends on what the distribution has of the rest.
set(CPACK_PACKAGE_CONTACT "weft <weft@localhost>")
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # and with them the loader's cache is renewed
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "gnuplot-nox, python3")
# Named components, so that the manifests stay as the last installation left them.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};weft;Unspecified;/"
  "${PROJECT_BINARY_DIR};weft;static;/")
include(CPack)
