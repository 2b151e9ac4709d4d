# Tests on the second platform only, and on both platforms together.
foreach(subject contract optimizer parts)
    clt_test_on_vendor(train.${subject} intel)
    clt_add_test(vendor.train.${subject}.mixed test_train_${subject})
    set_tests_properties(vendor.train.${subject}.mixed PROPERTIES LABELS vendor
        ENVIRONMENT "CLT_TEST_DEVICES=pocl,intel")
endforeach()

clt_test_on_vendor(train.collective intel)
clt_add_test(vendor.train.collective.mixed test_train_collective)
set_tests_properties(vendor.train.collective.mixed PROPERTIES LABELS vendor
    ENVIRONMENT "CLT_TEST_DEVICES=pocl@1,intel")
clt_add_test(vendor.train.virtual_shards.mixed test_train_virtual_shards)
set_tests_properties(vendor.train.virtual_shards.mixed PROPERTIES LABELS vendor
    ENVIRONMENT "CLT_TEST_DEVICES=pocl@1,intel")
clt_test_on_vendor(train.tensor intel)
clt_test_on_vendor(train.hybrid intel)
clt_test_on_vendor(train.exact intel)
clt_test_on_vendor(train.offload intel)
clt_test_on_vendor(train.bucket intel)
clt_test_on_vendor(train.tied intel)
clt_test_on_vendor(train.attention intel)
clt_test_on_vendor(train.groups intel)
clt_test_on_vendor(train.branches intel)
clt_test_on_vendor(train.device_data intel)
clt_test_on_vendor(train.checksum intel)
clt_test_on_vendor(train.recurrent intel)
clt_test_on_vendor(train.carried intel)
clt_add_test(vendor.train.carried.mixed test_train_carried)
set_tests_properties(vendor.train.carried.mixed PROPERTIES LABELS vendor
    ENVIRONMENT "CLT_TEST_DEVICES=pocl@1,intel")
clt_test_on_vendor(train.predictor intel)
clt_test_on_oclgrind(train.predictor)
clt_test_on_vendor(train.recompute intel)
set_tests_properties(train.recompute vendor.train.recompute PROPERTIES TIMEOUT 1200)
clt_test_on_oclgrind(train.checksum)
clt_test_on_oclgrind(train.recompute)
clt_test_on_oclgrind(train.device_data)
# Oclgrind's check for uninitialised values does not know one of the instructions that the optimiser makes.
if(TEST oclgrind.train.device_data)
    set_tests_properties(oclgrind.train.device_data oclgrind.train.predictor PROPERTIES TIMEOUT 1200)
    set_property(TEST oclgrind.train.checksum oclgrind.train.device_data oclgrind.train.predictor
        oclgrind.train.recompute
        APPEND PROPERTY ENVIRONMENT
        "OCLGRIND_BUILD_OPTIONS=-cl-opt-disable")
endif()
clt_add_test(vendor.train.parity.mixed test_train_parity)
set_tests_properties(vendor.train.parity.mixed PROPERTIES LABELS vendor TIMEOUT 1200
    ENVIRONMENT "CLT_TEST_DEVICES=pocl@1,intel")
# Skipped without CLBlast. Skipped on PoCL too, which takes a minute to compile each CLBlast program.
set_tests_properties(train.blas_choices PROPERTIES SKIP_RETURN_CODE 77)
clt_test_on_vendor(train.blas_choices intel)
set_tests_properties(vendor.train.blas_choices PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77)

# These tests measure which of two devices is slow. Another test at the same time would disturb them.
set_tests_properties(train.planner train.planner_ranks train.balance train.stages PROPERTIES RUN_SERIAL TRUE)
clt_test_on_vendor(train.copies intel)
clt_test_on_oclgrind(train.copies)
if(TEST oclgrind.train.copies)
    set_property(TEST oclgrind.train.copies APPEND PROPERTY ENVIRONMENT
        "OCLGRIND_BUILD_OPTIONS=-cl-opt-disable")
endif()
clt_test_on_vendor(train.given intel)
clt_add_test(vendor.train.given.mixed test_train_given)
set_tests_properties(vendor.train.given.mixed PROPERTIES LABELS vendor
    ENVIRONMENT "CLT_TEST_DEVICES=pocl@1,intel")
clt_test_on_oclgrind(train.given)
if(TEST oclgrind.train.given)
    set_property(TEST oclgrind.train.given APPEND PROPERTY ENVIRONMENT
        "OCLGRIND_BUILD_OPTIONS=-cl-opt-disable")
endif()
clt_test_on_vendor(train.half_gradients intel)
clt_test_on_vendor(train.loss_scaling intel)
clt_test_on_oclgrind(train.half_gradients)
if(TEST oclgrind.train.half_gradients)
    set_property(TEST oclgrind.train.half_gradients APPEND PROPERTY ENVIRONMENT
        "OCLGRIND_BUILD_OPTIONS=-cl-opt-disable")
endif()
clt_test_on_vendor(train.update_kernels intel)
clt_test_on_oclgrind(train.update_kernels)
if(TEST oclgrind.train.update_kernels)
    set_property(TEST oclgrind.train.update_kernels APPEND PROPERTY ENVIRONMENT
        "OCLGRIND_BUILD_OPTIONS=-cl-opt-disable")
endif()
# Skipped in a build without the tests' hooks.
set_tests_properties(train.choices_sums PROPERTIES SKIP_RETURN_CODE 77)
foreach(subject store_parts split_training split_ranks memory)
    clt_test_on_vendor(train.${subject} intel)
endforeach()
