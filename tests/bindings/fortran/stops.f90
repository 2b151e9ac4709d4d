! Without stat a failure ends the program with its message, as that of an allocate statement.
program stops
  use cltrain
  implicit none
  type(clt_store) :: store
  call clt_store_load(store, 'nowhere.safetensors')
  print *, 'went on'
end program
