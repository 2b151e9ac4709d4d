! Failures for which there is no stat end the program with a message. The argument chooses one.
program stops
  use cltrain
  implicit none
  type(clt_store) :: store
  type(clt_graph) :: graph
  type(clt_graph), allocatable :: one
  character(10) :: which
  call get_command_argument(1, which)
  select case (which)
  case ('load')
    call clt_store_load(store, 'nowhere.safetensors')
  case ('one') ! assignment does not allocate
    one = graph
  end select
  print *, 'went on'
end program
