# Without HDF5 the test cannot write its files, and is skipped.
set_tests_properties(data.hdf5 PROPERTIES SKIP_RETURN_CODE 77)
# Skipped in a build without libcsv.
set_tests_properties(data.csv PROPERTIES SKIP_RETURN_CODE 77)
