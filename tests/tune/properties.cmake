add_executable(tuning_keys tune/tuning_keys.c)
target_include_directories(tuning_keys PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(tuning_keys PRIVATE cltrain_static)
