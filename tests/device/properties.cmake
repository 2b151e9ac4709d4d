# Skipped without CLBlast. Skipped on PoCL too, which takes a minute to compile each CLBlast
# program.
set_tests_properties(device.clblast PROPERTIES LABELS op SKIP_RETURN_CODE 77)
clt_test_on_vendor(device.clblast intel)
set_property(TEST vendor.device.clblast APPEND PROPERTY ENVIRONMENT
    "CLT_TEST_SETTLED=${CMAKE_CURRENT_BINARY_DIR}/settled/vendor.device.clblast")
add_dependencies(test_device_clblast settled_code)
set_tests_properties(vendor.device.clblast PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77)
