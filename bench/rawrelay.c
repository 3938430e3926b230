/*
 * rawrelay: the raw-socket way to keep the sender's address, as samplicator -S, pmacct and syslog-ng do it.
 *
 *   rawrelay LISTEN TARGET        both ADDRESS:PORT, IPv4
 *
 * One recvmmsg(64) a batch, one sendmmsg a batch on a raw socket (IP_HDRINCL), with the IP and UDP
 * headers and the UDP checksum made here. Datagrams that no packet holds cannot be sent that way.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BATCH = 64, SLOT_BYTES = 2048, RECEIVE_BUFFER_BYTES = 64 << 20, SEND_BUFFER_BYTES = 8 << 20 };

struct headers {
	struct iphdr ip;
	struct udphdr udp;
};

static uint8_t slots[BATCH][SLOT_BYTES];

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in address(const char *text)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	char host[INET_ADDRSTRLEN];
	const char *colon = strchr(text, ':');
	if (colon == NULL)
		exit(64);
	snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
	if (inet_pton(AF_INET, host, &addr.sin_addr) != 1)
		exit(64);
	addr.sin_port = htons((uint16_t)atoi(colon + 1));
	return addr;
}

static uint32_t sum(const void *bytes, size_t len, uint32_t so_far)
{
	const uint8_t *at = bytes;
	for (; len > 1; len -= 2, at += 2)
		so_far += (uint32_t)(at[0] << 8 | at[1]);
	return len ? so_far + (uint32_t)(at[0] << 8) : so_far;
}

static uint16_t folded(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	uint16_t check = (uint16_t)~sum;
	return htons(check ? check : 0xffff);
}

static void fill(struct headers *headers, struct sockaddr_in from, struct sockaddr_in to, const uint8_t *payload, size_t len)
{
	uint16_t udp_len = htons((uint16_t)(sizeof headers->udp + len));
	headers->ip = (struct iphdr){ .ihl = 5, .version = 4, .ttl = 64, .protocol = IPPROTO_UDP,
		.tot_len = htons((uint16_t)(sizeof *headers + len)), .saddr = from.sin_addr.s_addr, .daddr = to.sin_addr.s_addr };
	headers->udp = (struct udphdr){ .source = from.sin_port, .dest = to.sin_port, .len = udp_len };
	uint32_t check = sum(&headers->ip.saddr, 8, IPPROTO_UDP + ntohs(udp_len));
	check = sum(&headers->udp, sizeof headers->udp, check);
	headers->udp.check = folded(sum(payload, len, check));
}

int main(int argc, char **argv)
{
	static struct mmsghdr in[BATCH], out[BATCH];
	static struct sockaddr_in names[BATCH];
	static struct iovec parts[BATCH], both[BATCH][2];
	static struct headers headers[BATCH];
	int bytes = RECEIVE_BUFFER_BYTES;
	if (argc != 3)
		exit(64);
	struct sockaddr_in listen_at = address(argv[1]), to = address(argv[2]);
	int input = socket(AF_INET, SOCK_DGRAM, 0), output = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	if (input < 0 || output < 0 || bind(input, (struct sockaddr *)&listen_at, sizeof listen_at) != 0)
		die("open");
	setsockopt(input, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
	bytes = SEND_BUFFER_BYTES;
	setsockopt(output, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);

	for (;;) {
		for (int i = 0; i < BATCH; i++) {
			parts[i] = (struct iovec){ .iov_base = slots[i], .iov_len = SLOT_BYTES };
			in[i].msg_hdr = (struct msghdr){ .msg_iov = &parts[i], .msg_iovlen = 1, .msg_name = &names[i], .msg_namelen = sizeof names[i] };
		}
		int count = recvmmsg(input, in, BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < count; i++) {
			fill(&headers[i], names[i], to, slots[i], in[i].msg_len);
			both[i][0] = (struct iovec){ .iov_base = &headers[i], .iov_len = sizeof headers[i] };
			both[i][1] = (struct iovec){ .iov_base = slots[i], .iov_len = in[i].msg_len };
			out[i].msg_hdr = (struct msghdr){ .msg_iov = both[i], .msg_iovlen = 2, .msg_name = &to, .msg_namelen = sizeof to };
		}
		for (int sent = 0; sent < count;) {
			int taken = sendmmsg(output, out + sent, (unsigned)(count - sent), 0);
			sent += taken > 0 ? taken : 1;
		}
	}
}
