! Handles: assignment shares, nothing is freed twice, a freed one gives a message, and order does not matter.
program handles
  use, intrinsic :: iso_c_binding, only: c_int64_t
  use checks
  use cltrain_core, only: clt_f_live
  implicit none
  type :: solver
    type(clt_store) :: store
    type(clt_trainer) :: trainer
    integer :: step = 0
  end type
  type :: pair
    type(clt_graph) :: graphs(2)
  end type
  type :: table
    type(clt_graph) :: graphs(2, 2)
  end type
  type :: family
    type(clt_graph), allocatable :: one, more(:)
  end type
  character(200) :: message
  integer :: stat, i
  integer(c_int64_t) :: before

  before = clt_f_live()
  call share()
  call components()
  call overwrite()
  call destroyed_store()
  call call_on_nothing()
  call values_of_a_freed_graph()
  call many_devices()
  call lists()
  call copies_by_the_compiler()
  do i = 1, 20
    call fixed_lists()
  end do
  call expect(clt_f_live() == before, 'all objects are freed at the end of procedures')
  do i = 1, 1000
    call one_graph()
  end do
  do i = 1, 20
    call one_trainer()
  end do
  call expect(clt_f_live() == before, 'no object is left after 1020 cycles')
  call finish()

contains

  subroutine share()
    type(clt_store) :: store
    type(clt_trainer) :: a, b, c(2)
    call make_trainer(2, 8, store, a)
    b = a
    c = b
    call step(b, stat, message)
    call expect(stat == 0, 'a copy of a handle works: ' // message)
    call expect(clt_trainer_steps(c(2)) == 1, 'copies stand for one trainer')
    a = a
    call expect(clt_trainer_steps(a) == 1, 'a = a changes nothing')
    call clt_trainer_destroy(a, stat, message)
    call expect(stat == 0, 'destroyed once')
    call clt_trainer_destroy(a, stat, message)
    call expect_failure(stat, message, 'clt_trainer_destroy: trainer was destroyed')
    call clt_trainer_destroy(b, stat, message)
    call expect_failure(stat, message, 'clt_trainer_destroy: trainer was destroyed')
    call step(c(1), stat, message)
    call expect_failure(stat, message, 'clt_step_arrays: trainer was destroyed')
    i = int(clt_trainer_steps(b, stat, message))
    call expect_failure(stat, message, 'clt_trainer_steps: trainer was destroyed')
  end subroutine

  subroutine components()
    type(solver) :: one, two
    call make_trainer(2, 8, one%store, one%trainer)
    two = one
    call use_up(one)
    call step(two%trainer, stat, message)
    call expect(stat == 0, 'a component outlives the variable that it came from: ' // message)
  end subroutine

  subroutine use_up(one)
    type(solver), intent(inout) :: one
    type(solver) :: nothing
    one = nothing
    call step(one%trainer, stat, message)
    call expect_failure(stat, message, 'is a handle that nothing was assigned to')
  end subroutine

  ! An output that has an object already gives it up.
  subroutine overwrite()
    type(clt_graph) :: graph, kept
    integer(c_int64_t) :: now
    now = clt_f_live()
    call clt_graph_create(graph)
    kept = graph
    call clt_graph_create(graph)
    call expect(clt_f_live() == now + 2, 'the first graph lives, because a handle has it')
    call clt_graph_create(graph)
    call expect(clt_f_live() == now + 2, 'the second graph was freed')
    call clt_graph_status(kept, stat)
    call expect(stat == 0, 'the first graph works')
  end subroutine

  ! A trainer needs its store, and the store its devices.
  subroutine destroyed_store()
    type(clt_store) :: store
    type(clt_trainer) :: trainer
    real(4) :: w(2, 16)
    call make_trainer(2, 8, store, trainer)
    call clt_store_destroy(store, stat, message)
    call expect(stat == 0, 'a store is destroyed before its trainer: ' // message)
    call clt_store_get_array(store, 'fc1.weight', w, stat, message)
    call expect_failure(stat, message, 'clt_store_get_array: store was destroyed')
    call step(trainer, stat, message)
    call expect(stat == 0, 'the trainer still has its store: ' // message)
  end subroutine

  ! Devices that were opened one by one: a store needs each.
  subroutine many_devices()
    type(clt_device), allocatable :: all(:), opened(:)
    type(clt_store) :: store
    type(clt_graph) :: graph
    type(clt_trainer) :: trainer
    type(clt_trainer_options) :: options
    integer :: k
    allocate (all(20))
    do k = 1, size(all)
      call open_devices(opened)
      all(k) = opened(1)
    end do
    call clt_mlp_regressor(2, [16], 1, graph=graph)
    call clt_store_create(graph, all, 3, store)
    deallocate (all, opened)
    call clt_trainer_options_init(options)
    options%batch = 40
    call clt_trainer_create(graph, store, options, trainer)
    call step(trainer, stat, message)
    call expect(stat == 0, 'a store keeps twenty devices: ' // message)
  end subroutine

  ! Assignment of lists: the forms of docs/fortran.md.
  subroutine lists()
    type(clt_graph), allocatable :: list(:), longer(:)
    type(clt_graph) :: graph, fixed(3)
    integer(c_int64_t) :: now
    now = clt_f_live()
    call clt_graph_create(graph)
    allocate (list(3))
    list = graph
    do i = 1, 3
      call clt_graph_create(list(i))
    end do
    call expect(clt_f_live() == now + 4, 'a list has objects of its own')
    do i = 3, 2, -1 ! the form that moves elements within a list
      list(i) = list(i - 1)
    end do
    call expect(clt_f_live() == now + 3, 'the last graph of the list was freed')
    call works(list(2), 'an assigned element')
    call works(list(3), 'an assigned element')
    allocate (longer(4))
    longer(1:3) = list ! the form that makes a list longer
    longer(4) = graph
    call move_alloc(longer, list)
    call expect(size(list) == 4, 'a longer list')
    call works(list(4), 'the last element')
    fixed = list(2:4)
    deallocate (list)
    call works(fixed(1), 'an element that was copied')
    fixed = graph
    call expect(clt_f_live() == now + 1, 'all that is left is one graph')
    graph = clt_graph()
    call works(fixed(3), 'the last element')
  end subroutine

  subroutine works(graph, what)
    type(clt_graph), intent(in) :: graph
    character(*), intent(in) :: what
    message = ''
    call clt_graph_status(graph, stat, message)
    call expect(stat == 0, what // ' works: ' // message)
  end subroutine

  ! Elements of lists of fixed size in derived types. gfortran 12 finalises only the first of them, so the
  ! program destroys what they stand for.
  subroutine fixed_lists()
    type(pair) :: a, b, nothing
    type(pair), allocatable :: c
    type(table) :: t
    type(clt_graph) :: graph
    call clt_graph_create(a%graphs(1))
    call clt_graph_create(a%graphs(2))
    call clt_graph_create(graph)
    allocate (c)
    c = a
    b = a
    a = nothing
    call works(b%graphs(2), 'a copied element')
    call works(c%graphs(1), 'a copied element')
    deallocate (c)
    call works(b%graphs(1), 'an element')
    call works(b%graphs(2), 'an element')
    t%graphs = graph
    t%graphs(2, 2) = b%graphs(2)
    call works(t%graphs(1, 2), 'an element of a table')
    call inner(graph)
    call works(graph, 'a graph that a list had as well')
    call clt_graph_destroy(b%graphs(1))
    call clt_graph_destroy(b%graphs(2))
    call clt_graph_destroy(graph)
  end subroutine

  subroutine inner(graph)
    type(clt_graph), intent(in) :: graph
    type(pair) :: a
    a%graphs(1) = graph
    a%graphs(2) = graph
  end subroutine

  ! gfortran 12 copies allocatable components without assignment. Such copies do not count.
  subroutine copies_by_the_compiler()
    type(family) :: x, y
    type(clt_graph) :: graph
    integer(c_int64_t) :: now
    now = clt_f_live()
    call clt_graph_create(graph)
    allocate (x%one, x%more(2))
    x%one = graph
    x%more = graph
    y = x
    x = family()
    y = family()
    call works(graph, 'a graph whose copies have ended')
    allocate (x%more(1))
    call clt_graph_create(x%more(1))
    call copy_and_end(x)
    call works(x%more(1), 'a graph of which a copy has ended')
    allocate (y%more(size(x%more))) ! the form that counts
    y%more = x%more
    x = family()
    call works(y%more(1), 'a copy of elements')
    call expect(clt_f_live() == now + 2, 'two graphs')
  end subroutine

  subroutine copy_and_end(x)
    type(family), intent(in) :: x
    type(family) :: z
    z = x
  end subroutine

  subroutine call_on_nothing()
    type(clt_trainer) :: trainer
    type(clt_device) :: devices(2)
    type(clt_graph) :: graph
    type(clt_store) :: store
    call step(trainer, stat, message)
    call expect_failure(stat, message, 'trainer is a handle that nothing was assigned to; create the object first')
    call clt_trainer_destroy(trainer, stat, message)
    call expect(stat == 0, 'nothing is destroyed without a message')
    call clt_graph_create(graph)
    call clt_store_create(graph, devices, 1, store, stat, message)
    call expect_failure(stat, message, 'devices is a handle that nothing was assigned to')
  end subroutine

  subroutine values_of_a_freed_graph()
    type(clt_graph) :: graph, other
    type(clt_value) :: x, y
    call clt_graph_create(graph)
    call clt_graph_create(other)
    x = clt_input(graph, 'x', CLT_F32, [3, CLT_BATCH])
    call expect(clt_value_rank(x) == 2, 'a value')
    call clt_graph_destroy(graph)
    y = clt_relu(x)
    y = clt_output(y, 'y')
    call expect(clt_value_rank(y) == 0, 'no value comes of a freed graph')
    call clt_metric(other, 'm', y, y, stat, message)
    call expect(stat /= 0, 'nothing is no operand')
    call clt_metric(other, 'm', x, x, stat, message)
    call expect_failure(stat, message, 'clt_metric: sum was destroyed')
    y = clt_input(graph, 'x', CLT_F32, [3, CLT_BATCH], stat, message)
    call expect_failure(stat, message, 'clt_input: graph was destroyed')
    call clt_graph_status(graph, stat, message)
    call expect_failure(stat, message, 'clt_graph_status: graph was destroyed')
  end subroutine

  subroutine one_graph()
    type(clt_graph) :: graph
    type(clt_value) :: x
    call clt_graph_create(graph)
    x = clt_relu(clt_input(graph, 'x', CLT_F32, [3, CLT_BATCH]))
  end subroutine

  subroutine one_trainer()
    type(clt_trainer) :: trainer
    type(clt_store) :: store
    call make_trainer(2, 8, store, trainer)
  end subroutine

  subroutine step(trainer, stat, message)
    type(clt_trainer), intent(in) :: trainer
    integer, intent(out) :: stat
    character(*), intent(inout) :: message
    real(8) :: x(2, 8), y(1, 8), loss
    x = 1
    y = 2
    message = ''
    call clt_step_arrays(trainer, 'x', x, 'y', y, loss=loss, stat=stat, errmsg=message)
  end subroutine
end program
