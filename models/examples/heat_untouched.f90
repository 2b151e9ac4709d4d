! Heat in a rod whose conductivity depends on the temperature. heat.f90 is this program with a surrogate.
program heat
  implicit none
  integer, parameter :: cells = 256, steps = 1500
  real(8), parameter :: dx = 1d0 / cells, dt = 0.2d0 * dx**2
  real(8) :: u(0:cells + 1), flux(0:cells), faces(2, 0:cells)
  integer :: i, step

  u = [(1 + 0.5d0 * sin(6.2831853d0 * i * dx) + 0.3d0 * cos(25d0 * i * dx), i = 0, cells + 1)]
  do step = 1, steps
    faces(1, :) = 0.5d0 * (u(:cells) + u(1:))
    faces(2, :) = (u(1:) - u(:cells)) / dx
    flux = conductivity(faces(1, :)) * faces(2, :)
    u(1:cells) = u(1:cells) + dt / dx * (flux(1:) - flux(:cells - 1))
    u(0) = u(1)
    u(cells + 1) = u(cells)
    if (mod(step, 500) == 0) print '(a, i0, a, f8.5)', 'step ', step, ': mean temperature ', sum(u(1:cells)) / cells
  end do

contains

  ! Stands for a model of the material that takes long to evaluate.
  elemental real(8) function conductivity(t)
    real(8), intent(in) :: t
    conductivity = 0.4d0 + 0.3d0 * tanh(4 * (t - 1)) + 0.2d0 * t**2
  end function
end program
