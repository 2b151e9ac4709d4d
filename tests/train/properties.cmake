# On the second platform alone, and across both platforms in one run.
foreach(subject contract optimizer parts)
    clt_test_on_vendor(train.${subject} intel)
    add_test(NAME vendor.train.${subject}.mixed COMMAND test_train_${subject})
    set_tests_properties(vendor.train.${subject}.mixed PROPERTIES LABELS vendor
        ENVIRONMENT "CLT_TEST_DEVICES=pocl,intel")
endforeach()
