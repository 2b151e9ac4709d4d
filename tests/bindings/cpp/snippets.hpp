/* What the snippets of docs/cpp.md use without declaring it. */
#include <cltrain/cltrain.hpp>

#include <cstdio>
#include <stdexcept>

extern clt::runtime runtime;
extern std::vector<clt::device> devices;
extern clt::graph graph;
extern clt::store store;
extern clt::trainer trainer;
extern clt::dataset train, test;
extern std::vector<double> x, y, table;
extern std::vector<float> weights;
extern std::vector<double> doubles;
extern std::int64_t n;
