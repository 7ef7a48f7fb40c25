# What `cmake --install` and ci/package take along. Programs find the rest by their own place, so a prefix can be moved.
#
#   bin/lockstep, bin/lockstep-rank   the programs, byte for byte those of the build folder
#   share/lockstep/configs            the configs that `lockstep run NAME` finds, their schema, and savers/ with templates for savers
#   share/lockstep/data               BasicMotions, if ci/bootstrap has fetched it; not in the package
#   include/lockstep_probe.h          the tracer for LibTorch trainers
#   lib/lockstep/libtorch             a link to LibTorch's libraries; in the package postinst makes it
install(TARGETS lockstep DESTINATION bin COMPONENT programs)
install(DIRECTORY configs/ DESTINATION share/lockstep/configs COMPONENT programs PATTERN __pycache__ EXCLUDE)
install(CODE [[
  execute_process(COMMAND "$<TARGET_FILE:lockstep>" schema COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_FILE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/lockstep/configs/matrix.schema.json")
]] COMPONENT programs)
install(FILES probe/cpp/lockstep_probe.h DESTINATION include COMPONENT programs)
install(FILES README.md CHANGELOG.md DESTINATION share/doc/lockstep COMPONENT programs)
install(FILES LICENSE DESTINATION share/doc/lockstep RENAME copyright COMPONENT programs)
install(DIRECTORY docs DESTINATION share/doc/lockstep COMPONENT programs)
if(LOCKSTEP_TORCH)
  install(TARGETS lockstep-rank DESTINATION bin COMPONENT programs)
  install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/lockstep-rank.version DESTINATION share/lockstep COMPONENT programs)
  install(CODE "set(torch_folder \"${TORCH_INSTALL_PREFIX}/lib\")" COMPONENT local)
  install(CODE [[
    set(link "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/lockstep/libtorch")
    message(STATUS "Linking: ${link} -> ${torch_folder}")
    file(MAKE_DIRECTORY "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/lockstep")
    file(CREATE_LINK "${torch_folder}" "${link}" SYMBOLIC)
  ]] COMPONENT local)
endif()
install(DIRECTORY .lockstep/data/ DESTINATION share/lockstep/data COMPONENT local OPTIONAL FILES_MATCHING PATTERN "*.ts")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_CONTACT "lockstep maintainers <maintainers@users.noreply.a-seed-aa97a01d.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "says whether a distributed training run trains the same as the run it should equal")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL programs)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "It needs LibTorch 2.13, which is no Debian package: the installation links one that it finds, or says what to do.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/ci/debian/postinst ${CMAKE_SOURCE_DIR}/ci/debian/prerm)
# Whatever Debian packages hold of what the programs are linked with; LibTorch is in none.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(LOCKSTEP_TORCH)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${TORCH_INSTALL_PREFIX}/lib)
endif()
include(CPack)
