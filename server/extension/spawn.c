/*-------------------------------------------------------------------------
 *
 * spawn.c
 *		Runs "pgseal helper column-keys", which reads wrapped keys from a pipe and
 *		writes unwrapped keys to another: keys are never in arguments or files.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#define MAX_MESSAGE 2000
#define HELPER_TIMEOUT_MS 90000

typedef struct Child
{
	pid_t		pid;
	int			in;
	int			out;
	int			err;
} Child;

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void
start_child(Child *child, char *const argv[])
{
	int			in[2] = {-1, -1};
	int			out[2] = {-1, -1};
	int			err[2] = {-1, -1};
	sigset_t	all,
				before;
	int			save;

	if (pipe(in) != 0 || pipe(out) != 0 || pipe(err) != 0)
	{
		save = errno;
		close_fd(&in[0]);
		close_fd(&in[1]);
		close_fd(&out[0]);
		close_fd(&out[1]);
		errno = save;
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not make a pipe for the pgseal helper: %m")));
	}
	/*
	 * The server's signal handlers write to shared memory: they must not run in the child before
	 * exec.
	 */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	child->pid = fork();
	if (child->pid == 0)
	{
		sigset_t	none;
		struct sigaction by_default;
		int			max = (int) sysconf(_SC_OPEN_MAX);

		/* Only async-signal-safe calls from here to exec. */
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		/* The helper and its children must not inherit sockets and data files of the server. */
		for (int fd = 3; fd < (max > 0 && max < 65536 ? max : 65536); fd++)
			close(fd);
		memset(&by_default, 0, sizeof(by_default));
		by_default.sa_handler = SIG_DFL;
		for (int sig = 1; sig < NSIG; sig++)
			sigaction(sig, &by_default, NULL);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execv(argv[0], argv);
		_exit(errno == ENOENT ? 127 : 126);
	}
	save = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = save;
	close_fd(&in[0]);
	close_fd(&out[1]);
	close_fd(&err[1]);
	child->in = in[1];
	child->out = out[0];
	child->err = err[0];
	if (child->pid < 0)
	{
		close_fd(&child->in);
		close_fd(&child->out);
		close_fd(&child->err);
		ereport(ERROR, (errmsg("could not fork for the pgseal helper: %m")));
	}
	fcntl(child->in, F_SETFL, O_NONBLOCK);
	fcntl(child->out, F_SETFL, O_NONBLOCK);
	fcntl(child->err, F_SETFL, O_NONBLOCK);
}

/* Waits for the end of the child; with kill_it, kills the child first. */
static int
end_child(Child *child, bool kill_it)
{
	int			status = 0;

	close_fd(&child->in);
	close_fd(&child->out);
	close_fd(&child->err);
	if (child->pid <= 0)
		return -1;
	if (kill_it)
		kill(child->pid, SIGKILL);
	while (waitpid(child->pid, &status, 0) < 0)
	{
		if (errno != EINTR)
		{
			status = -1;
			break;
		}
	}
	child->pid = 0;
	return status;
}

/*
 * Writes the input to the child and reads both its outputs until they end.  Returns the number of
 * bytes on standard output, which may be more than `capacity`.
 */
static size_t
converse(Child *child, const uint8 *input, size_t input_len, uint8 *output, size_t capacity, char *message)
{
	size_t		sent = 0;
	size_t		got = 0;
	size_t		said = 0;
	int			waited_ms = 0;

	while (child->out >= 0 || child->err >= 0)
	{
		struct pollfd fds[3] = {
			{child->in, POLLOUT, 0}, {child->out, POLLIN, 0}, {child->err, POLLIN, 0}
		};
		char		spill[256];
		ssize_t		n;

		CHECK_FOR_INTERRUPTS();
		/* poll() skips descriptors below zero. */
		if (poll(fds, 3, 100) == 0 && (waited_ms += 100) > HELPER_TIMEOUT_MS)
			ereport(ERROR, (errmsg("the pgseal helper gave no keys within %d s", HELPER_TIMEOUT_MS / 1000)));
		if (child->in >= 0)
		{
			n = sent < input_len ? write(child->in, input + sent, input_len - sent) : 0;
			if (n > 0)
				sent += n;
			if (sent == input_len || (n < 0 && errno != EAGAIN && errno != EINTR))
				close_fd(&child->in);
		}
		if (child->out >= 0)
		{
			n = got < capacity ? read(child->out, output + got, capacity - got) :
				read(child->out, spill, sizeof(spill));
			if (n > 0)
				got += n;
			else if (n == 0 || (errno != EAGAIN && errno != EINTR))
				close_fd(&child->out);
		}
		if (child->err >= 0)
		{
			n = said < MAX_MESSAGE - 1 ? read(child->err, message + said, MAX_MESSAGE - 1 - said) :
				read(child->err, spill, sizeof(spill));
			if (n > 0 && said < MAX_MESSAGE - 1)
				said += n;
			else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
				close_fd(&child->err);
		}
	}
	message[said] = '\0';
	return got;
}

/*
 * The path without links, and whether it is the program pgseal outside of the data directory; NULL
 * if it is nowhere.
 */
static char *
resolved(const char *path, bool *is_fine)
{
	char	   *helper = realpath(path, NULL);
	char	   *data = realpath(DataDir, NULL);
	char	   *result = helper != NULL ? pstrdup(helper) : NULL;
	bool		inside = helper != NULL && data != NULL && path_is_prefix_of_path(data, helper);

	free(helper);
	free(data);
	*is_fine = result != NULL && !inside && strcmp(last_dir_separator(result) + 1, "pgseal") == 0;
	return result;
}

/*
 * The program that pgseal.helper names.  The configuration may lie in the data directory, and
 * somebody who can write there must not be able to run a program of their own: neither one in the
 * data directory, nor another one (a shell) that would interpret the arguments differently.  The
 * resolved path is run, so that a link cannot be changed between the check and the call.
 */
static char *
configured_helper(void)
{
	bool		is_fine;
	char	   *result = resolved(pgseal_helper, &is_fine);

	if (result == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("the program \"%s\" could not be run, so there are no column keys", pgseal_helper),
				 errhint("Install pgseal, or set pgseal.helper to where it is.")));
	if (!is_fine)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("pgseal.helper is \"%s\", which is not the program pgseal outside of the data directory", pgseal_helper),
				 errhint("Install pgseal, or set pgseal.helper to where it is.")));
	return result;
}

/*
 * The program that was installed with the library libpgseal.so, which a sealed server has loaded:
 * beside it, or where 'make install' and packages put it.  NULL without the library.  It is of the
 * same version as the library.
 */
static char *
helper_of_library(void)
{
	static const char *const places[] = {"%s/pgseal", "%s/../../bin/pgseal"};
	void	   *function = dlsym(RTLD_DEFAULT, "pgseal_abi");
	Dl_info		library;
	char	   *directory;

	if (function == NULL || dladdr(function, &library) == 0 || library.dli_fname == NULL)
		return NULL;
	directory = pstrdup(library.dli_fname);
	get_parent_directory(directory);
	for (int i = 0; i < lengthof(places); i++)
	{
		bool		is_fine;
		char	   *path = resolved(psprintf(places[i], directory), &is_fine);

		if (path != NULL && is_fine && access(path, X_OK) == 0)
			return path;
	}
	return NULL;
}

/* The program of the setting, else that of the loaded library, else the one that is installed. */
static char *
helper_path(void)
{
	static const char *const places[] = {"/usr/local/bin/pgseal", "/usr/bin/pgseal"};
	char	   *own;

	if (pgseal_helper != NULL && *pgseal_helper != '\0')
		return configured_helper();
	own = helper_of_library();
	if (own != NULL)
		return own;
	for (int i = 0; i < lengthof(places); i++)
		if (access(places[i], X_OK) == 0)
			return unconstify(char *, places[i]);
	return unconstify(char *, places[0]);
}

/*
 * One call of the helper.  The answer is the 8 bytes PGSCOLK1, output_len bytes, and ENDK; anything
 * else is an error.
 */
void
pgseal_run_helper(const char *task, const char *to_provider,
				  const uint8 *input, size_t input_len, uint8 *output, size_t output_len)
{
	char	   *argv[12];
	int			argc = 0;
	Child		child = {0, -1, -1, -1};
	char		message[MAX_MESSAGE];
	size_t		capacity = 8 + output_len + 4 + 1;
	uint8	   *answer;
	size_t volatile got = 0;
	int			status;

	if (pgseal_provider == NULL || *pgseal_provider == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("pgseal does not know where the key of the column keys comes from"),
				 errhint("A superuser sets it: ALTER SYSTEM SET pgseal.provider = 'file:/path' and SELECT pg_reload_conf().")));
	argv[argc++] = helper_path();
	argv[argc++] = "helper";
	argv[argc++] = "column-keys";
	argv[argc++] = "--provider";
	argv[argc++] = pgseal_provider;
	argv[argc++] = "--dir";
	argv[argc++] = DataDir;
	if (to_provider != NULL)
	{
		argv[argc++] = "--to";
		argv[argc++] = unconstify(char *, to_provider);
	}
	argv[argc++] = unconstify(char *, task);
	argv[argc] = NULL;

	message[0] = '\0';
	answer = palloc(capacity);
	start_child(&child, argv);
	PG_TRY();
	{
		got = converse(&child, input, input_len, answer, capacity, message);
	}
	PG_CATCH();
	{
		pgseal_column_wipe(answer, capacity);
		end_child(&child, true);
		PG_RE_THROW();
	}
	PG_END_TRY();
	status = end_child(&child, false);
	while (*message != '\0' && strchr(" \n", message[strlen(message) - 1]) != NULL)
		message[strlen(message) - 1] = '\0';
	if (status == 0 && got == capacity - 1 && memcmp(answer, "PGSCOLK1", 8) == 0 &&
		memcmp(answer + 8 + output_len, "ENDK", 4) == 0)
	{
		memcpy(output, answer + 8, output_len);
		pgseal_column_wipe(answer, capacity);
		pfree(answer);
		return;
	}
	pgseal_column_wipe(answer, capacity);
	if (WIFEXITED(status) && (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127) && *message == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("the program \"%s\" could not be run, so there are no column keys", argv[0]),
				 errhint("Install pgseal, or set pgseal.helper to where it is.")));
	ereport(ERROR,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
			 errmsg("the pgseal helper gave no column keys"),
			 *message ? errdetail_log("%s", message) : 0,
			 superuser() && *message ? errdetail("%s", message) : 0,
			 errhint("The server's log has the helper's message.")));
}
