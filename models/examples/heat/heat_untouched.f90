! Rods warm up from their ends. heat.f90 is heat_untouched.f90 with a network that learns meanwhile to predict a
! rod ten time steps later.
program heat
  implicit none
  integer, parameter :: rods = 64, cells = 32, steps = 200
  real :: now(cells, rods), next(cells, rods)
  integer :: r, step

  now = 0
  do r = 0, rods - 1
    now(1, r + 1) = mod(r, 8) / 8.0
    now(cells, r + 1) = (r / 8) / 16.0
  end do
  do step = 1, steps
    next = advanced(now)
    print '(a, i0, a, f8.6)', 'step ', step, ': mean temperature ', sum(real(next, 8)) / size(next)
    now = next
  end do

contains

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
