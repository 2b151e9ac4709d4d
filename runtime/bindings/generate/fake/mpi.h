/* For the parser of the public headers, which reads names of types only. */
typedef int MPI_Comm;
