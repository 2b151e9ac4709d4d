/* For the parser of the public headers, which reads names of types only. */
typedef unsigned long size_t;
