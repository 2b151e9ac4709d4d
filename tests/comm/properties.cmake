set_tests_properties(comm.allreduce comm.queued comm.requests comm.pipeline comm.peer PROPERTIES
    TIMEOUT 120)
set_tests_properties(comm.random PROPERTIES TIMEOUT 240)

# The example program of <cltrain/comm.h>, built in the tree. check.package builds it out of tree.
add_executable(example_allreduce ${PROJECT_SOURCE_DIR}/models/examples/allreduce.c)
target_link_libraries(example_allreduce PRIVATE cltrain_static)
clt_add_test(comm.example example_allreduce)
set_tests_properties(comm.example PROPERTIES LABELS unit TIMEOUT 60
    PASS_REGULAR_EXPRESSION "device 0: \\[3, 3\\]\ndevice 1: \\[3, 3\\]")

# Tests on a second platform, and between devices of both platforms.
foreach(subject allreduce pipeline)
    clt_test_on_vendor(comm.${subject} intel)
    clt_add_test(vendor.comm.${subject}.mixed test_comm_${subject})
    set_tests_properties(vendor.comm.${subject}.mixed PROPERTIES LABELS vendor
        ENVIRONMENT "CLT_TEST_DEVICES=pocl,intel")
endforeach()
clt_test_on_vendor(comm.peer intel)
set_tests_properties(vendor.comm.peer PROPERTIES TIMEOUT 300)
