/*
 * limitrelay: the least work that a tee in user space can do. The yardstick of `make bench`.
 *
 *   limitrelay PORT TARGET... [-r | -g]
 *
 * Receives on 127.0.0.1:PORT and sends every datagram to every TARGET, which is a port on
 * 127.0.0.1 or ADDRESS:PORT: one recvmmsg(64) a batch, one sendmmsg a batch and target, and
 * nothing else. No ring, no counters, no error handling beyond "try the next one".
 *
 *   -r   runs of datagrams of equal length leave as one UDP_SEGMENT message each, gathered
 *        from the buffers where they lie
 *   -g   datagrams that the kernel has together (UDP_GRO) are received and leave so
 *
 * It asks for 64 MiB of receive buffer, which the kernel doubles, and for 8 MiB of send
 * buffer a target, both beyond the limits that sysctl sets if it may.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SOL_UDP
#define SOL_UDP 17
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum mode { EACH, RUNS, TOGETHER };

enum {
	BATCH = 64,
	SLOT_BYTES = 65536, /* one for each datagram of a batch; the largest payload is 65,507 */
	TARGETS_MAX = 64,
	RUN_BYTES_MAX = 65000, /* a message is at most 65,507 bytes long, however many segments */
	RECEIVE_BUFFER_BYTES = 64 << 20,
	SEND_BUFFER_BYTES = 8 << 20,
};

struct segment_control {
	_Alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(uint16_t))];
};

/* What the kernel says of an aggregate: the length of its datagrams, as an int. */
struct aggregate_control {
	_Alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
};

static uint8_t slots[BATCH][SLOT_BYTES];

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

/* PORT, which is on loopback, or ADDRESS:PORT. */
static struct sockaddr_in address(const char *text)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *colon = strchr(text, ':');
	if (colon != NULL) {
		char host[INET_ADDRSTRLEN];
		snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
		if (inet_pton(AF_INET, host, &addr.sin_addr) != 1) {
			fprintf(stderr, "%s: not an IPv4 address\n", text);
			exit(64);
		}
	}
	addr.sin_port = htons((uint16_t)atoi(colon != NULL ? colon + 1 : text));
	return addr;
}

/* The forced form needs CAP_NET_ADMIN; without it net.core.[rw]mem_max limits what is granted. */
static void ask_buffer(int fd, int forced, int plain, int bytes)
{
	if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof bytes) != 0 &&
	    setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof bytes) != 0)
		die("setsockopt");
}

static int open_input(const char *port, enum mode mode)
{
	struct sockaddr_in addr = address(port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof addr) != 0)
		die("bind");
	ask_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, RECEIVE_BUFFER_BYTES);
	int one = 1;
	if (mode == TOGETHER && setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof one) != 0)
		die("UDP_GRO");
	return fd;
}

static int open_target(const char *target)
{
	struct sockaddr_in addr = address(target);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0)
		die("connect");
	ask_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, SEND_BUFFER_BYTES);
	return fd;
}

/* Sends all messages; one that fails is left out. */
static void send_all(int fd, struct mmsghdr *messages, int count)
{
	for (int sent = 0; sent < count;) {
		int taken = sendmmsg(fd, messages + sent, (unsigned)(count - sent), 0);
		sent += taken > 0 ? taken : 1;
	}
}

/* Has the kernel cut a message into segments. */
static void cut(struct msghdr *message, struct segment_control *room, uint16_t segment_bytes)
{
	message->msg_control = room->bytes;
	message->msg_controllen = sizeof room->bytes;
	struct cmsghdr *control = CMSG_FIRSTHDR(message);
	control->cmsg_level = SOL_UDP;
	control->cmsg_type = UDP_SEGMENT;
	control->cmsg_len = CMSG_LEN(sizeof segment_bytes);
	memcpy(CMSG_DATA(control), &segment_bytes, sizeof segment_bytes);
}

/* Makes what was received what is to be sent: an aggregate is cut up as it was put together. */
static void cut_again(struct mmsghdr *messages, struct segment_control *controls, int count)
{
	for (int i = 0; i < count; i++) {
		struct msghdr *message = &messages[i].msg_hdr;
		int segment_bytes = 0;
		struct cmsghdr *control = CMSG_FIRSTHDR(message);
		if (control != NULL && control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO)
			memcpy(&segment_bytes, CMSG_DATA(control), sizeof segment_bytes);
		message->msg_control = NULL;
		message->msg_controllen = 0;
		if (segment_bytes > 0 && (unsigned)segment_bytes < messages[i].msg_len)
			cut(message, &controls[i], (uint16_t)segment_bytes);
	}
}

/*
 * Makes one message of each run of equal length in parts[0..count). The message's iovec
 * is the stretch of `parts` that the run covers. Returns the number of messages.
 */
static int gather_runs(struct mmsghdr *messages, struct segment_control *controls,
		       struct iovec *parts, int count)
{
	int made = 0;
	for (int first = 0; first < count;) {
		size_t length = parts[first].iov_len, total = length;
		int end = first + 1;
		while (end < count && parts[end].iov_len == length && total + length < RUN_BYTES_MAX) {
			total += length;
			end++;
		}
		struct msghdr *message = &messages[made].msg_hdr;
		*message = (struct msghdr){ .msg_iov = &parts[first], .msg_iovlen = (size_t)(end - first) };
		if (end - first > 1)
			cut(message, &controls[made], (uint16_t)length);
		made++;
		first = end;
	}
	return made;
}

static _Noreturn void relay(int input, const int *targets, int target_count, enum mode mode)
{
	static struct mmsghdr in[BATCH], out[BATCH];
	static struct segment_control controls[BATCH];
	static struct aggregate_control aggregates[BATCH];
	static struct iovec parts[BATCH];
	for (;;) {
		for (int i = 0; i < BATCH; i++) {
			parts[i] = (struct iovec){ .iov_base = slots[i], .iov_len = SLOT_BYTES };
			in[i].msg_hdr = (struct msghdr){ .msg_iov = &parts[i], .msg_iovlen = 1 };
			if (mode == TOGETHER) {
				in[i].msg_hdr.msg_control = aggregates[i].bytes;
				in[i].msg_hdr.msg_controllen = sizeof aggregates[i].bytes;
			}
		}
		int received = recvmmsg(input, in, BATCH, MSG_WAITFORONE, NULL);
		if (received < 0 && errno != EINTR)
			die("recvmmsg");
		for (int i = 0; i < received; i++)
			parts[i].iov_len = in[i].msg_len;
		/* Headers that were filled for receiving are right for sending too: same iovec, no control data. */
		struct mmsghdr *messages = mode == RUNS ? out : in;
		int count = mode == RUNS ? gather_runs(out, controls, parts, received) : received;
		if (mode == TOGETHER)
			cut_again(in, controls, received);
		for (int t = 0; t < target_count; t++)
			send_all(targets[t], messages, count);
	}
}

int main(int argc, char **argv)
{
	int targets[TARGETS_MAX], target_count = 0;
	enum mode mode = EACH;
	if (argc < 3) {
		fputs("usage: limitrelay PORT TARGET... [-r | -g]\n", stderr);
		return 64;
	}
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "-r") == 0)
			mode = RUNS;
		else if (strcmp(argv[i], "-g") == 0)
			mode = TOGETHER;
		else if (target_count < TARGETS_MAX)
			targets[target_count++] = open_target(argv[i]);
	}
	relay(open_input(argv[1], mode), targets, target_count, mode);
}
