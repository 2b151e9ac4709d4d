! Rods warm up from their ends, and each rank has rods of its own. heat_mpi.f90 is heat_mpi_untouched.f90 with a
! network that learns from the rods of all ranks. Of three or more ranks, the last one has other work.
program heat
  use mpi_f08
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

    call MPI_Comm_rank(team, rank)
    call MPI_Comm_size(team, ranks)
    now = 0
    do r = 0, rods - 1
      now(1, r + 1) = mod(r, 8) / 8.0
      now(cells, r + 1) = (r / 8 + rods / 8 * rank) / 16.0
    end do
    do step = 1, steps
      next = advanced(now)
      mine = sum(real(next, 8))
      call MPI_Reduce(mine, all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, team)
      now = next
      if (rank > 0) cycle
      print '(a, i0, a, f8.6)', 'step ', step, ': mean temperature ', all / (size(next) * ranks)
    end do
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
