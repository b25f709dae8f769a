# What `cmake --install` and a package put where. Nothing in it is found by an absolute path but the programs that the units
# start, so a prefix may be chosen when it is installed.

# What people share lies beside the programs; what a machine may lack is opened at run time (core/module.h).
set(motley_share "share/motley")
install(TARGETS motley motley-worker RUNTIME DESTINATION bin)
foreach(module motley_mpi motley_cuda)
  if(TARGET ${module})
    install(TARGETS ${module} LIBRARY DESTINATION lib/motley)
  endif()
endforeach()
install(FILES worker/bridge/motley_torch.py DESTINATION lib/motley)
install(DIRECTORY configs DESTINATION "${motley_share}")
install(DIRECTORY deploy/prometheus deploy/grafana DESTINATION "${motley_share}/deploy")
install(FILES README.md LICENSE core/FORMATS.md DESTINATION share/doc/motley)
install(FILES deploy/README.md DESTINATION share/doc/motley RENAME deploy.md)

# Completions come from the program itself.
set(motley_completions
  "bash:share/bash-completion/completions/motley"
  "zsh:share/zsh/vendor-completions/_motley"
  "fish:share/fish/vendor_completions.d/motley.fish")
foreach(completion IN LISTS motley_completions)
  string(REPLACE ":" ";" parts "${completion}")
  list(GET parts 0 shell)
  list(GET parts 1 file)
  install(CODE "
    set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\")
    get_filename_component(directory \"\${file}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${directory}\")
    execute_process(COMMAND \"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/motley\" completion ${shell}
                    OUTPUT_FILE \"\${file}\" COMMAND_ERROR_IS_FATAL ANY)")
endforeach()

# The units name the programs where they are installed.
foreach(unit motley.service motley-agent.service)
  install(CODE "
    set(MOTLEY_BIN \"\${CMAKE_INSTALL_PREFIX}/bin\")
    configure_file(\"${PROJECT_SOURCE_DIR}/deploy/systemd/${unit}.in\"
                   \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}\" @ONLY)")
endforeach()

# cpack -G DEB
set(CPACK_PACKAGE_NAME motley)
set(CPACK_PACKAGE_VENDOR "Motley")
set(CPACK_PACKAGE_CONTACT "the Motley engineers <motley@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains one model on unlike accelerators")
set(CPACK_PACKAGE_DESCRIPTION
    "Measures every device, plans who computes what, launches MPI workers and carries on when something dies. With a service for many jobs, machines and people.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# OpenBLAS is opened at run time, which dpkg-shlibdeps does not see.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin, libopenblas0, adduser")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openssh-client")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  "${PROJECT_SOURCE_DIR}/deploy/debian/postinst;${PROJECT_SOURCE_DIR}/deploy/debian/prerm;${PROJECT_SOURCE_DIR}/deploy/debian/postrm")
include(CPack)
