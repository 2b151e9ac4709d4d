# Without HDF5 there is nothing to write its files with.
set_tests_properties(data.hdf5 PROPERTIES SKIP_RETURN_CODE 77)
