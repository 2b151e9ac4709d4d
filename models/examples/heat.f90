! Heat in a rod whose conductivity depends on the temperature. While the simulation runs, a network learns
! the conductivity from it. heat_untouched.f90 is the simulation alone.
program heat
  use cltrain
  implicit none
  integer, parameter :: cells = 256, steps = 1500
  real(8), parameter :: dx = 1d0 / cells, dt = 0.2d0 * dx**2
  real(8) :: u(0:cells + 1), flux(0:cells), faces(2, 0:cells)
  type(clt_runtime) :: runtime
  type(clt_device), allocatable :: devices(:)
  type(clt_graph) :: graph
  type(clt_store) :: store
  type(clt_trainer) :: trainer
  type(clt_trainer_options) :: options
  real(8) :: loss, learnt(1, 0:cells)
  integer :: i, step

  call clt_runtime_create(runtime=runtime)
  call clt_devices_open(runtime, 'cpu', devices=devices)
  call clt_mlp_regressor(1, [32, 32], 1, 'tanh', graph)
  call clt_store_create(graph, devices, 1, store)
  call clt_trainer_options_init(options)
  options%optimizer = CLT_ADAM
  options%lr = 0.005d0
  options%batch = cells + 1
  call clt_trainer_create(graph, store, options, trainer)

  u = [(1 + 0.5d0 * sin(6.2831853d0 * i * dx) + 0.3d0 * cos(25d0 * i * dx), i = 0, cells + 1)]
  do step = 1, steps
    faces(1, :) = 0.5d0 * (u(:cells) + u(1:))
    faces(2, :) = (u(1:) - u(:cells)) / dx
    flux = conductivity(faces(1, :)) * faces(2, :)
    ! The sample of a face is a column: its temperature is the input, its conductivity the target.
    call clt_step_arrays(trainer, 'x', faces(1:1, :), 'y', reshape(conductivity(faces(1, :)), [1, cells + 1]))
    u(1:cells) = u(1:cells) + dt / dx * (flux(1:) - flux(:cells - 1))
    u(0) = u(1)
    u(cells + 1) = u(cells)
    if (mod(step, 500) == 0) print '(a, i0, a, f8.5)', 'step ', step, ': mean temperature ', sum(u(1:cells)) / cells
  end do

  call clt_predict_arrays(trainer, 'x', faces(1:1, :), 'prediction', learnt)
  loss = maxval(abs(learnt(1, :) - conductivity(faces(1, :))))
  print '(a, f8.5)', 'largest error of the learnt conductivity ', loss
  if (loss > 0.05d0) error stop 'the network has not learnt'

contains

  ! Stands for a model of the material that takes long to evaluate.
  elemental real(8) function conductivity(t)
    real(8), intent(in) :: t
    conductivity = 0.4d0 + 0.3d0 * tanh(4 * (t - 1)) + 0.2d0 * t**2
  end function
end program
