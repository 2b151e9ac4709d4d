/* Sockets with a secret: messages arrive, and strangers neither arrive nor disturb. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/async/transport.h"

static const char SECRET[] = "a secret of the test", OTHER[] = "a secret of another";
enum { MOST = 1 << 20, SOON = 5000, STRANGERS = 100 };

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

/* Sends a message there and another one back. Returns whether both came. */
static bool talks(server *s, clt_net *net)
{
    clt_socket *client;
    clt_packet packet = {0};
    int which;
    assert_int_equal(clt_socket_connect(net, s->address, &client), CLT_OK);
    assert_int_equal(clt_socket_send(client, NULL, "head", 4, "body", 4), CLT_OK);
    assert_int_equal(clt_socket_receive(&s->socket, 1, SOON, &which, &packet), CLT_OK);
    bool came = which == 0;
    if (came) {
        assert_int_equal(packet.header_bytes, 4);
        assert_memory_equal(packet.header, "head", 4);
        assert_memory_equal(packet.payload, "body", 4);
        assert_int_equal(clt_socket_send(s->socket, &packet.peer, "back", 4, NULL, 0), CLT_OK);
        clt_packet_free(&packet);
        assert_int_equal(clt_socket_receive(&client, 1, SOON, &which, &packet), CLT_OK);
        came = which == 0 && packet.header_bytes == 4 && !packet.payload_bytes;
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
static void test_large_messages_end_their_connection(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_arrive),
        cmocka_unit_test(test_short_secrets_are_refused),
        cmocka_unit_test(test_a_wrong_secret_is_not_heard),
        cmocka_unit_test(test_strangers_do_no_harm),
        cmocka_unit_test(test_large_messages_end_their_connection),
    };
    if (!clt_net_is_built())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
