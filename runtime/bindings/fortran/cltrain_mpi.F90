! Ranks of MPI for module cltrain. Communicators are integers (mpi, mpif.h), or of type(MPI_Comm) if the
! file is compiled with CLT_MPI_F08, for which MPI must have the module mpi_f08 of this compiler.
module cltrain_mpi
  use, intrinsic :: iso_c_binding
  use cltrain_core, only: clt_in, clt_own, clt_report
  use cltrain, only: clt_world
#ifdef CLT_MPI_F08
  use mpi_f08, only: MPI_Comm
#endif
  implicit none
  private
  public :: clt_world_open_mpi, clt_world_set_deadlines_mpi

  ! Opens the world of the ranks of a communicator, for options%world. Collective. The communicator is
  ! duplicated and stays the program's. Close the world (clt_world_close), which is collective too, before
  ! MPI_Finalize.
  interface clt_world_open_mpi
    procedure open_integer
#ifdef CLT_MPI_F08
    procedure open_f08
#endif
  end interface

  interface
    function clt_f_world_open_mpi(ranks, world) bind(c) result(status)
      import
      integer(c_int), value :: ranks
      type(c_ptr), intent(out) :: world
      integer(c_int) :: status
    end function
    function clt_f_world_deadlines(world, late, stopped) bind(c) result(status)
      import
      type(c_ptr), value :: world
      real(c_double), value :: late, stopped
      integer(c_int) :: status
    end function
    subroutine clt_f_world_free(world) bind(c)
      import
      type(c_ptr), value :: world
    end subroutine
  end interface

contains

  subroutine open_integer(ranks, world, stat, errmsg)
    integer, intent(in) :: ranks
    type(clt_world), intent(inout) :: world
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: object, kept
    integer(c_int) :: status
    kept = c_null_ptr
    status = clt_f_world_open_mpi(int(ranks, c_int), object)
    if (status == 0) call clt_own(world, object, c_funloc(clt_f_world_free), kept, status)
    call clt_report(status, stat, errmsg)
  end subroutine

#ifdef CLT_MPI_F08
  subroutine open_f08(ranks, world, stat, errmsg)
    type(MPI_Comm), intent(in) :: ranks
    type(clt_world), intent(inout) :: world
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call open_integer(ranks%MPI_VAL, world, stat, errmsg)
  end subroutine
#endif

  ! Sets how many seconds a rank may be late outside reductions, and how long a process of this machine may
  ! be stopped; 0: without limit. Collective.
  subroutine clt_world_set_deadlines_mpi(world, late, stopped, stat, errmsg)
    type(clt_world), intent(in) :: world
    real(c_double), intent(in) :: late, stopped
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: object
    integer(c_int) :: status
    status = 0
    object = clt_in(world, 'clt_world_set_deadlines_mpi', 'world', status)
    if (status == 0) status = clt_f_world_deadlines(object, late, stopped)
    call clt_report(status, stat, errmsg)
  end subroutine
end module
