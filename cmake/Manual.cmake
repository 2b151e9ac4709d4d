# Man pages and bash completion, which the command writes from its tables. They are left out if the
# build cannot run its own programs, as in cross-compiling.
set(CLT_MANUAL)
if(TARGET cltrain_command AND NOT CMAKE_CROSSCOMPILING)
    set(CLT_MANUAL ${PROJECT_BINARY_DIR}/manual)
    file(MAKE_DIRECTORY ${CLT_MANUAL}/man1)
    set(pages "")
    foreach(command "" devices train eval predict sample export plan inspect bench tune data plot)
        string(REGEX REPLACE "-$" "" page "cltrain-${command}")
        add_custom_command(OUTPUT ${CLT_MANUAL}/man1/${page}.1
            COMMAND cltrain_command --print-man ${command} > ${CLT_MANUAL}/man1/${page}.1
            DEPENDS cltrain_command VERBATIM)
        list(APPEND pages ${CLT_MANUAL}/man1/${page}.1)
    endforeach()
    add_custom_command(OUTPUT ${CLT_MANUAL}/cltrain
        COMMAND cltrain_command --print-completion > ${CLT_MANUAL}/cltrain
        DEPENDS cltrain_command VERBATIM)
    add_custom_target(cltrain_manual ALL DEPENDS ${pages} ${CLT_MANUAL}/cltrain)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${CLT_MANUAL}/cltrain DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()
