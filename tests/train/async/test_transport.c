/* Sockets with a secret: messages arrive, and strangers neither arrive nor disturb. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "train/async/transport.h"

static const char SECRET[] = "a secret of the test", OTHER[] = "a secret of another";
enum { MOST = 3 << 20, SOON = 20000, STRANGERS = 100 };

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

typedef struct server {
    clt_net *net;
    clt_socket *socket;
    char address[64];
} server;

static server listen_at(const char *secret)
{
    server s = {0};
    assert_int_equal(clt_net_create(secret, &s.net), CLT_OK);
    assert_int_equal(clt_socket_listen(s.net, "127.0.0.1:0", MOST, &s.socket), CLT_OK);
    snprintf(s.address, sizeof s.address, "127.0.0.1:%d", clt_socket_port(s.socket));
    return s;
}

static void end(server *s)
{
    clt_socket_close(s->socket);
    clt_net_destroy(s->net);
}

/* Receives what comes soon. Messages that are dropped end a wait early. */
static bool comes(clt_socket *at, clt_packet *packet)
{
    const double end = clt_clock() + 1e-3 * SOON;
    int which = -1;
    while (which < 0 && clt_clock() < end)
        assert_int_equal(clt_socket_receive(&at, 1, SOON, &which, packet), CLT_OK);
    return which == 0;
}

/* Sends a message there and another one back. Returns whether both came. */
static bool talks(server *s, clt_net *net)
{
    clt_socket *client;
    clt_packet packet = {0};
    assert_int_equal(clt_socket_connect(net, s->address, &client), CLT_OK);
    assert_int_equal(clt_socket_send(client, NULL, "head", 4, "body", 4), CLT_OK);
    bool came = comes(s->socket, &packet);
    if (came) {
        assert_int_equal(packet.header_bytes, 4);
        assert_memory_equal(packet.header, "head", 4);
        assert_memory_equal(packet.payload, "body", 4);
        assert_int_equal(clt_socket_send(s->socket, &packet.peer, "back", 4, NULL, 0), CLT_OK);
        clt_packet_free(&packet);
        came = comes(client, &packet) && packet.header_bytes == 4 && !packet.payload_bytes;
        clt_packet_free(&packet);
    }
    clt_socket_close(client);
    return came;
}

/* Returns whether a message comes within a moment. */
static bool hears(server *s)
{
    clt_packet packet = {0};
    int which;
    assert_int_equal(clt_socket_receive(&s->socket, 1, 500, &which, &packet), CLT_OK);
    clt_packet_free(&packet);
    return which >= 0;
}

static void test_messages_arrive(void **state)
{
    server s = listen_at(SECRET);
    clt_net *net;
    (void)state;
    assert_int_equal(clt_net_create(SECRET, &net), CLT_OK);
    assert_true(talks(&s, net));
    clt_net_destroy(net);
    end(&s);
}

static void test_short_secrets_are_refused(void **state)
{
    clt_net *net;
    (void)state;
    assert_int_equal(clt_net_create(NULL, &net), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_net_create("", &net), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_net_create("fifteen letters", &net), CLT_INVALID_ARGUMENT);
}

static void test_a_wrong_secret_is_not_heard(void **state)
{
    server s = listen_at(SECRET);
    clt_net *right, *wrong;
    clt_socket *client;
    (void)state;
    assert_int_equal(clt_net_create(OTHER, &wrong), CLT_OK);
    assert_int_equal(clt_socket_connect(wrong, s.address, &client), CLT_OK);
    assert_int_equal(clt_socket_send(client, NULL, "head", 4, "body", 4), CLT_OK);
    assert_false(hears(&s));
    assert_int_equal(clt_net_create(SECRET, &right), CLT_OK);
    assert_true(talks(&s, right));
    clt_socket_close(client);
    clt_net_destroy(wrong);
    clt_net_destroy(right);
    end(&s);
}

/* A plain connection to the port. */
static int connect_plainly(const server *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)clt_socket_port(s->socket))};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* What a client of ZeroMQ without CURVE, or with CURVE, would send first. */
static size_t greeting(const char *mechanism, uint8_t *bytes)
{
    memset(bytes, 0, 64);
    bytes[0] = 0xff;
    bytes[8] = 1;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    memcpy(bytes + 12, mechanism, strlen(mechanism));
    return 64;
}

/* Garbage, greetings that go on with garbage, and connections that say nothing: none is heard, and
 * a client with the secret is served meanwhile. */
static void test_strangers_do_no_harm(void **state)
{
    server s = listen_at(SECRET);
    clt_net *net;
    int open[STRANGERS], n = 0;
    uint32_t seed = 4;
    (void)state;
    assert_int_equal(clt_net_create(SECRET, &net), CLT_OK);
    for (int i = 0; i < 3 * STRANGERS; i++) {
        uint8_t bytes[2048];
        size_t size = 0;
        const int fd = connect_plainly(&s);
        if (i % 3 == 1)
            size = greeting(i % 2 ? "NULL" : "CURVE", bytes);
        for (size_t more = i % 3 == 2 ? 0 : draw(&seed) % 1500; more > 0; more--)
            bytes[size++] = (uint8_t)draw(&seed);
        if (size)
            assert_true(send(fd, bytes, size, MSG_NOSIGNAL) >= 0);
        if (n < STRANGERS && i % 3)
            open[n++] = fd; /* stays half open */
        else
            close(fd);
        if (i % 50 == 0)
            assert_true(talks(&s, net));
    }
    assert_false(hears(&s));
    assert_true(talks(&s, net));
    for (int i = 0; i < n; i++)
        close(open[i]);
    clt_net_destroy(net);
    end(&s);
}

/* With the secret, but of a form that the program does not use: dropped before it sees them. */
static void test_too_large_messages_are_dropped(void **state)
{
    server s = listen_at(SECRET);
    clt_net *net;
    clt_socket *client;
    void *large = calloc(1, 2 * MOST);
    (void)state;
    assert_int_equal(clt_net_create(SECRET, &net), CLT_OK);
    assert_int_equal(clt_socket_connect(net, s.address, &client), CLT_OK);
    assert_int_equal(clt_socket_send(client, NULL, "head", 4, large, 2 * MOST), CLT_OK);
    assert_false(hears(&s));
    assert_true(talks(&s, net));
    clt_socket_close(client);
    clt_net_destroy(net);
    end(&s);
    free(large);
}

/* Sends a payload and checks every byte of it. */
static void deliver(clt_socket *from, const clt_peer *to, clt_socket *at, size_t bytes, int seconds,
                    clt_peer *peer)
{
    uint8_t *data = malloc(bytes + 1);
    clt_packet packet = {0};
    int which = -1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 7 + i / 251 + i / 65537);
    assert_int_equal(clt_socket_send(from, to, "head", 4, data, bytes), CLT_OK);
    assert_int_equal(clt_socket_receive(&at, 1, seconds * 1000, &which, &packet), CLT_OK);
    assert_int_equal(which, 0);
    assert_int_equal(packet.header_bytes, 4);
    assert_int_equal(packet.payload_bytes, bytes);
    assert_memory_equal(packet.payload, data, bytes);
    if (peer)
        *peer = packet.peer;
    clt_packet_free(&packet);
    free(data);
}

static void test_payloads_of_many_parts_arrive_whole(void **state)
{
    static const size_t sizes[] = {0, 1, (1 << 19) - 1, 1 << 19, (1 << 19) + 1, 1 << 20, MOST - 1};
    server s = listen_at(SECRET);
    clt_net *net;
    clt_socket *client;
    (void)state;
    assert_int_equal(clt_net_create(SECRET, &net), CLT_OK);
    assert_int_equal(clt_socket_connect(net, s.address, &client), CLT_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        clt_peer peer;
        deliver(client, NULL, s.socket, sizes[i], 10, &peer);
        deliver(s.socket, &peer, client, sizes[i], 10, NULL);
    }
    clt_socket_close(client);
    clt_net_destroy(net);
    end(&s);
}

/* A link of so many bytes a second in one direction, between two sockets of the system. */
enum { RATE = 80 << 10, LINK_SECONDS = 240 };

typedef struct slow_link {
    int listener, port, to;
    pthread_t thread;
} slow_link;

/* Passes on what one side sends, at once or at the rate. Returns false at its end. */
static bool pass(int from, int to, size_t most)
{
    char bytes[1 << 16];
    const ssize_t got = recv(from, bytes, most < sizeof bytes ? most : sizeof bytes, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN;
    for (ssize_t sent = 0, more; sent < got; sent += more)
        if ((more = send(to, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL)) < 0)
            return false;
    return got > 0;
}

/* Passes on what the rate allows since the last tick: ticks come late if other programs run. */
static void *run_link(void *user)
{
    slow_link *l = user;
    const int in = accept(l->listener, NULL, NULL);
    const struct timespec tick = {0, 20 * 1000 * 1000};
    double now = clt_clock(), last;
    do {
        nanosleep(&tick, NULL);
        last = now;
        now = clt_clock();
    } while (in >= 0 && pass(in, l->to, (size_t)(RATE * (now - last))) && pass(l->to, in, 1 << 16));
    close(in);
    close(l->to);
    return NULL;
}

/* Makes a link to the server. Little waits in the system, so that the sender feels the rate. */
static void start_link(slow_link *l, const server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    const int little = 1 << 14;
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    l->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(l->listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    assert_int_equal(bind(l->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(l->listener, 1), 0);
    assert_int_equal(getsockname(l->listener, (struct sockaddr *)&at, &size), 0);
    l->port = ntohs(at.sin_port);
    l->to = connect_plainly(s);
    assert_int_equal(pthread_create(&l->thread, NULL, run_link, l), 0);
}

/* The payload takes longer than the time after which a silent connection counts as dead. */
static void test_a_slow_link_delivers_a_large_payload(void **state)
{
    server s = listen_at(SECRET);
    slow_link link;
    char address[64];
    clt_net *net;
    clt_socket *client;
    (void)state;
    start_link(&link, &s);
    snprintf(address, sizeof address, "127.0.0.1:%d", link.port);
    assert_int_equal(clt_net_create(SECRET, &net), CLT_OK);
    assert_int_equal(clt_socket_connect(net, address, &client), CLT_OK);
    deliver(client, NULL, s.socket, 3 * MOST / 4, LINK_SECONDS, NULL);
    clt_socket_close(client);
    clt_net_destroy(net);
    end(&s);
    pthread_join(link.thread, NULL);
    close(link.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_arrive),
        cmocka_unit_test(test_short_secrets_are_refused),
        cmocka_unit_test(test_a_wrong_secret_is_not_heard),
        cmocka_unit_test(test_strangers_do_no_harm),
        cmocka_unit_test(test_too_large_messages_are_dropped),
        cmocka_unit_test(test_payloads_of_many_parts_arrive_whole),
        cmocka_unit_test(test_a_slow_link_delivers_a_large_payload),
    };
    if (!clt_net_is_built())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
