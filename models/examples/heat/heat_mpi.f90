! Rods warm up from their ends, and each rank has rods of its own. heat_mpi.f90 is heat_mpi_untouched.f90 with a
! network that learns from the rods of all ranks. Of three or more ranks, the last one has other work.
program heat
  use mpi_f08
  use cltrain
  use cltrain_mpi
  implicit none
  integer, parameter :: rods = 64, cells = 32, steps = 200
  type(MPI_Comm) :: team
  integer :: rank, ranks, color

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  color = merge(0, MPI_UNDEFINED, ranks < 3 .or. rank < ranks - 1)
  call MPI_Comm_split(MPI_COMM_WORLD, color, rank, team)
  if (color == 0) then
    call simulate()
    call MPI_Comm_free(team)
  end if
  call MPI_Finalize()

contains

  subroutine simulate()
    real :: now(cells, rods), next(cells, rods)
    real(8) :: mine, all
    integer :: r, step
    type(clt_world) :: world
    type(clt_runtime) :: runtime
    type(clt_device), allocatable :: devices(:)
    type(clt_graph) :: graph
    type(clt_store) :: store
    type(clt_trainer) :: trainer
    type(clt_trainer_options) :: options
    type(clt_dataset) :: samples
    real(8) :: loss

    call MPI_Comm_rank(team, rank)
    call MPI_Comm_size(team, ranks)
    now = 0
    do r = 0, rods - 1
      now(1, r + 1) = mod(r, 8) / 8.0
      now(cells, r + 1) = (r / 8 + rods / 8 * rank) / 16.0
    end do
    call clt_world_open_mpi(team, world)
    call clt_runtime_create(runtime=runtime)
    call clt_devices_open(runtime, 'cpu', devices=devices)
    call clt_mlp_regressor(cells, [64], cells, 'tanh', graph)
    call clt_store_create(graph, devices, 0, store)
    call clt_trainer_options_init(options)
    call clt_optimizer_defaults(CLT_ADAM, options)
    options%batch = rods * ranks
    options%world = world
    call clt_trainer_create(graph, store, options, trainer)
    call clt_dataset_create_reservoir('rods', 1024, dataset=samples)
    call clt_trainer_set_reservoir(trainer, samples)
    do step = 1, steps
      next = advanced(now)
      mine = sum(real(next, 8))
      call MPI_Reduce(mine, all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, team)
      call clt_dataset_push(samples, now, next)
      call clt_step_reservoir(trainer, 1, loss)
      now = next
      if (rank > 0) cycle
      print '(a, i0, a, f8.6)', 'step ', step, ': mean temperature ', all / (size(next) * ranks)
      print '(a, es14.8)', 'loss ', loss
    end do
    call clt_trainer_finish(trainer)
    call clt_trainer_destroy(trainer)
    call clt_store_destroy(store)
    call clt_world_close(world)
  end subroutine

  ! Ten explicit steps of the heat equation. A rod conducts better where it is warm.
  pure function advanced(start) result(u)
    real, intent(in) :: start(:, :)
    real :: u(cells, rods), old(cells, rods)
    integer :: n
    u = start
    do n = 1, 10
      old = u
      u(2:cells - 1, :) = old(2:cells - 1, :) + 0.2 * (1 + old(2:cells - 1, :) * old(2:cells - 1, :)) &
                          * (old(1:cells - 2, :) - 2 * old(2:cells - 1, :) + old(3:, :))
    end do
  end function
end program
