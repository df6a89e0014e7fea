# cmake --install: the program with its manual pages and shell completion, the library, its header, and what find_package(epipe) reads.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(epipe_formats "")
foreach(format JPEG PNG ZLIB)
  if(${format}_FOUND)
    string(APPEND epipe_formats " ${format}")
  endif()
endforeach()
set(epipe_sanitizer_options "")
if(EPIPE_SANITIZE)
  set(epipe_sanitizer_options -fsanitize=${EPIPE_SANITIZE})  # the archive needs their run time
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/epipe)
install(TARGETS epipe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES $<TARGET_FILE:libepipe> DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/src/epipe/epipe.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/epipe)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/epipeConfig.cmake.in ${PROJECT_BINARY_DIR}/epipeConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/epipeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/epipeConfig.cmake ${PROJECT_BINARY_DIR}/epipeConfigVersion.cmake DESTINATION ${package_dir})

# Manual pages and completion follow the flags of the program that is installed.
set(manual ${PROJECT_BINARY_DIR}/manual)
configure_file(${PROJECT_SOURCE_DIR}/cmake/epipe_manual.cmake.in ${PROJECT_BINARY_DIR}/epipe_manual.cmake @ONLY)
install(CODE "set(program \"$<TARGET_FILE:epipe>\")")
install(SCRIPT ${PROJECT_BINARY_DIR}/epipe_manual.cmake)
install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${manual}/epipe DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${manual}/_epipe DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${manual}/epipe.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
