/* Runs a program whose system calls on files of one folder are counted, refused, or its last.
 *
 *     meddle FOLDER [kill=N] [CALL=ERRNO]... -- PROGRAM [ARGUMENT]...
 *
 * `kill=N` ends the program by SIGKILL in place of its Nth changing call; `close=122` refuses every close of a file that
 * was opened for writing, and so on with the names in the table. `sync-folder=22` refuses each sync of a folder, which is
 * not counted. The program's other calls, and its calls on other files,
 * are its own. When it ends, `meddle: N calls` is said on standard error, and its exit code is passed on: 128 and the
 * signal's number where a signal ended it, 125 where the system does not let anybody meddle.
 *
 * The system hands over each of these calls by seccomp(2), so that no program has to be built for it, and none that makes
 * its calls itself gets away. No rights are needed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { BY_DESCRIPTOR, OF_FOLDER, BY_PATH, OPENING };

static struct call {
    const char *name;
    long number;
    enum kind kind;
    int error;
} calls[] = {
    {"write", __NR_write, BY_DESCRIPTOR, 0},
    {"write", __NR_pwrite64, BY_DESCRIPTOR, 0},
    {"write", __NR_writev, BY_DESCRIPTOR, 0},
    {"write", __NR_pwritev, BY_DESCRIPTOR, 0},
    {"write", __NR_pwritev2, BY_DESCRIPTOR, 0},
    {"truncate", __NR_ftruncate, BY_DESCRIPTOR, 0},
    {"allocate", __NR_fallocate, BY_DESCRIPTOR, 0},
    {"sync", __NR_fsync, BY_DESCRIPTOR, 0},
    {"sync", __NR_fdatasync, BY_DESCRIPTOR, 0},
    {"sync-folder", __NR_fsync, OF_FOLDER, 0},
    {"close", __NR_close, BY_DESCRIPTOR, 0},
    {"chmod", __NR_fchmod, BY_DESCRIPTOR, 0},
    {"chmod", __NR_fchmodat, BY_PATH, 0},
    {"chown", __NR_fchown, BY_DESCRIPTOR, 0},
    {"chown", __NR_fchownat, BY_PATH, 0},
    {"times", __NR_utimensat, BY_PATH, 0},
    {"rename", __NR_renameat, BY_PATH, 0},
    {"rename", __NR_renameat2, BY_PATH, 0},
    {"link", __NR_linkat, BY_PATH, 0},
    {"unlink", __NR_unlinkat, BY_PATH, 0},
#ifdef __NR_rename
    {"chmod", __NR_chmod, BY_PATH, 0},
    {"rename", __NR_rename, BY_PATH, 0},
    {"link", __NR_link, BY_PATH, 0},
    {"unlink", __NR_unlink, BY_PATH, 0},
#endif
    {"open", __NR_openat, OPENING, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

static const char *folder;
static long kill_at;

static void fail(const char *what) {
    perror(what);
    exit(125);
}

/* Asks the system to hand over the calls of the table; returns where they come in, or -1. */
static int hand_over(void) {
    struct sock_filter filter[CALLS + 3];
    int length = 0;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int at = 0; at < CALLS; at++) {
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[at].number, CALLS - at, 0);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {.len = length, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return -1;
    }
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

/* A message with room for one descriptor. */
struct parcel {
    struct msghdr message;
    struct iovec part;
    char byte;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
};

static void wrap(struct parcel *parcel) {
    memset(parcel, 0, sizeof *parcel);
    parcel->part = (struct iovec){.iov_base = &parcel->byte, .iov_len = 1};
    parcel->message = (struct msghdr){
        .msg_iov = &parcel->part,
        .msg_iovlen = 1,
        .msg_control = parcel->control.room,
        .msg_controllen = sizeof parcel->control.room,
    };
}

static void send_descriptor(int socket, int descriptor) {
    struct parcel parcel;
    wrap(&parcel);
    struct cmsghdr *header = CMSG_FIRSTHDR(&parcel.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (sendmsg(socket, &parcel.message, 0) != 1) {
        _exit(125);
    }
}

static int receive_descriptor(int socket) {
    struct parcel parcel;
    int descriptor;
    wrap(&parcel);
    if (recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC) != 1 || CMSG_FIRSTHDR(&parcel.message) == NULL) {
        return -1;
    }
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&parcel.message)), sizeof descriptor);
    return descriptor;
}

/* Returns whether a descriptor of a process is of a file in the folder, open for writing. */
static int is_written(pid_t process, int descriptor) {
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/%d/fd/%d", process, descriptor);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) {
        return 0;
    }
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder)) != 0) {
        return 0;
    }
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", process, descriptor);
    FILE *info = fopen(name, "re");
    unsigned flags = 0;
    char line[128];
    while (info != NULL && fgets(line, sizeof line, info) != NULL) {
        if (sscanf(line, "flags: %o", &flags) == 1) {
            break;
        }
    }
    if (info != NULL) {
        fclose(info);
    }
    return (flags & O_ACCMODE) != O_RDONLY;
}

/* Returns whether a descriptor of a process is of a folder. */
static int is_folder(pid_t process, int descriptor) {
    char name[64];
    struct stat status;
    snprintf(name, sizeof name, "/proc/%d/fd/%d", process, descriptor);
    return stat(name, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Returns the call, if it changes something that is watched. */
static struct call *watched(const struct seccomp_notif *request) {
    for (int at = 0; at < CALLS; at++) {
        struct call *call = &calls[at];
        if (call->number != request->data.nr) {
            continue;
        }
        switch (call->kind) {
        case BY_DESCRIPTOR:
            if (is_written(request->pid, (int)request->data.args[0])) {
                return call;
            }
            break;
        case OF_FOLDER:
            if (call->error != 0 && is_folder(request->pid, (int)request->data.args[0])) {
                return call;
            }
            break;
        case BY_PATH:
            return call;
        case OPENING:
            return request->data.args[2] & O_CREAT ? call : NULL;
        }
    }
    return NULL;
}

/* Answers the calls until nobody is left to make any; returns how many changed something. */
static long serve(int listener, pid_t child) {
    long count = 0;
    for (;;) {
        struct pollfd polled = {.fd = listener, .events = POLLIN};
        if (poll(&polled, 1, -1) < 0 && errno == EINTR) {
            continue;
        }
        if ((polled.revents & POLLIN) == 0) {
            return count;
        }
        struct seccomp_notif request;
        memset(&request, 0, sizeof request);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
            continue;
        }
        struct seccomp_notif_resp answer = {.id = request.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        struct call *call = watched(&request);
        if (call != NULL && ++count == kill_at) {
            /* The program may have had another make the call. */
            kill(request.pid, SIGKILL);
            kill(child, SIGKILL);
            continue;
        }
        if (call != NULL && call->error != 0) {
            answer.flags = 0;
            answer.error = -call->error;
        }
        /* Who was killed meanwhile waits for no answer. */
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static int parse_rule(const char *rule) {
    const char *equals = strchr(rule, '=');
    int is_known = 0;
    if (equals == NULL) {
        return 0;
    }
    size_t length = equals - rule;
    if (length == 4 && strncmp(rule, "kill", length) == 0) {
        kill_at = atol(equals + 1);
        return 1;
    }
    for (int at = 0; at < CALLS; at++) {
        if (strlen(calls[at].name) == length && strncmp(calls[at].name, rule, length) == 0) {
            calls[at].error = atoi(equals + 1);
            is_known = 1;
        }
    }
    return is_known;
}

int main(int count, char **arguments) {
    int at = 2, sockets[2];
    folder = arguments[1];
    while (at < count && strcmp(arguments[at], "--") != 0) {
        if (!parse_rule(arguments[at++])) {
            fprintf(stderr, "meddle: no rule: %s\n", arguments[at - 1]);
            return 125;
        }
    }
    if (++at >= count || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        return 125;
    }
    pid_t child = fork();
    if (child < 0) {
        fail("fork");
    }
    if (child == 0) {
        int listener = hand_over();
        if (listener < 0) {
            perror("meddle: seccomp");
            _exit(125);
        }
        send_descriptor(sockets[1], listener);
        execvp(arguments[at], &arguments[at]);
        perror(arguments[at]);
        _exit(125);
    }
    /* The streams are the program's alone, so that a reader of them sees when it ends. */
    close(0);
    close(1);
    close(sockets[1]);
    int listener = receive_descriptor(sockets[0]);
    long calls_made = listener < 0 ? 0 : serve(listener, child);
    int status;
    if (waitpid(child, &status, 0) != child) {
        fail("waitpid");
    }
    if (listener >= 0) {
        fprintf(stderr, "meddle: %ld calls\n", calls_made);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
