/* A module. With -DPAST_THE_SEAL it imports aio_write, which pgseal refuses; with -DVARIABLE a
   variable of the C library whose name contains "read", like that of a file function; with
   -DCALLS=NAME it calls function NAME; with -DDEFINES=NAME it defines function NAME. */
extern int puts(const char *);
#ifdef CALLS
extern int CALLS(void);
#endif
#ifdef VARIABLE
extern char __libc_single_threaded;
#endif
#ifdef PAST_THE_SEAL
extern int aio_write(void *);
static volatile int never;
#endif
__attribute__((constructor)) static void loaded(void) { puts("constructor runs"); }
int answer(void)
{
#if defined(PAST_THE_SEAL)
    return never ? aio_write(0) : 42;
#elif defined(CALLS)
    return CALLS();
#elif defined(VARIABLE)
    return __libc_single_threaded ? 42 : 43;
#else
    return 42;
#endif
}
#ifdef DEFINES
int DEFINES(void) { return 7; }
#endif
