! What the test programs share: expectations, and devices to try them on.
module checks
  use, intrinsic :: iso_fortran_env, only: error_unit
  use cltrain
  implicit none
  integer :: failed = 0, passed = 0

contains

  subroutine expect(holds, text)
    logical, intent(in) :: holds
    character(*), intent(in) :: text
    if (holds) then
      passed = passed + 1
    else
      failed = failed + 1
      write (error_unit, '(2a)') 'not so: ', text
    end if
  end subroutine

  ! A call has failed with a message that contains `part`, in one line.
  subroutine expect_failure(stat, message, part)
    integer, intent(in) :: stat
    character(*), intent(in) :: message, part
    call expect(stat /= 0, 'a failure with "' // part // '"')
    call expect(index(message, part) > 0, '"' // part // '" in "' // trim(message) // '"')
    call expect(index(message, new_line('a')) == 0, 'one line: ' // trim(message))
  end subroutine

  subroutine finish()
    print '(i0, a, i0, a)', passed, ' expectations hold, ', failed, ' do not'
    if (failed > 0) error stop 'failed'
  end subroutine

  ! Opens the devices that the environment names, or the CPUs.
  subroutine open_devices(devices)
    type(clt_device), allocatable, intent(inout) :: devices(:)
    type(clt_runtime) :: runtime
    character(100) :: list
    integer :: length
    call get_environment_variable('CLT_TEST_DEVICES', list, length)
    if (length == 0) list = 'cpu'
    call clt_runtime_create(runtime=runtime)
    call clt_devices_open(runtime, list, devices=devices)
  end subroutine

  ! Makes a trainer of an MLP from `inputs` numbers to one.
  subroutine make_trainer(inputs, batch, store, trainer)
    integer, intent(in) :: inputs, batch
    type(clt_store), intent(inout) :: store
    type(clt_trainer), intent(inout) :: trainer
    type(clt_device), allocatable :: devices(:)
    type(clt_graph) :: graph
    type(clt_trainer_options) :: options
    call open_devices(devices)
    call clt_mlp_regressor(inputs, [16], 1, graph=graph)
    call clt_store_create(graph, devices, 3, store)
    call clt_trainer_options_init(options)
    options%optimizer = CLT_ADAM
    options%lr = 0.01d0
    options%batch = batch
    call clt_trainer_create(graph, store, options, trainer)
  end subroutine
end module
