/* Rods warm up from their ends, and each rank has rods of its own. heat_mpi.cpp is
 * heat_mpi_untouched.cpp with a network that learns from the rods of all ranks. Of three or more
 * ranks, the last one has other work. */
#include <array>
#include <cstdio>
#include <mpi.h>
#include <numeric>
#include <vector>

constexpr std::size_t rods = 64, cells = 32;
constexpr int steps = 200;
using rod = std::array<float, cells>;

/* Ten explicit steps of the heat equation. A rod conducts better where it is warm. */
static rod advance(rod u)
{
    for (int n = 0; n < 10; n++) {
        const rod old = u;
        for (std::size_t i = 1; i < cells - 1; i++)
            u[i] = old[i] + 0.2f * (1 + old[i] * old[i]) * (old[i - 1] - 2 * old[i] + old[i + 1]);
    }
    return u;
}

static void simulate(MPI_Comm team)
{
    int rank, ranks;
    MPI_Comm_rank(team, &rank);
    MPI_Comm_size(team, &ranks);
    std::vector<rod> now(rods), next(rods);
    for (std::size_t r = 0; r < rods; r++) {
        now[r].front() = static_cast<float>(r % 8) / 8;
        now[r].back() = static_cast<float>(r / 8) / 16 + static_cast<float>(rank) / 2;
    }
    for (int step = 1; step <= steps; step++) {
        double sum = 0, all = 0;
        for (std::size_t r = 0; r < rods; r++) {
            next[r] = advance(now[r]);
            sum = std::accumulate(next[r].begin(), next[r].end(), sum);
        }
        MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, team);
        if (rank == 0)
            std::printf("step %d: mean temperature %.6f\n", step, all / (rods * cells) / ranks);
        now.swap(next);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Comm team;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const bool simulates = ranks < 3 || rank < ranks - 1;
    MPI_Comm_split(MPI_COMM_WORLD, simulates ? 0 : MPI_UNDEFINED, rank, &team);
    if (simulates) {
        simulate(team);
        MPI_Comm_free(&team);
    }
    MPI_Finalize();
}
