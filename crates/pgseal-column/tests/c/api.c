/*
 * api.c: calls every function of pgseal_column.h from C, as an extension would. Prints each failed
 * check, and how many checks failed.
 */
#include "pgseal_column.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int	failures;

#define CHECK(what) \
	do { \
		if (!(what)) \
		{ \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
			failures++; \
		} \
	} while (0)

#define DOMAIN UINT64_C(0x1122334455667788)

static void
keys(void)
{
	uint8_t		bytes[32],
				bare[32],
				wrapped[PGSEAL_COLUMN_WRAPPED_BYTES],
				again[PGSEAL_COLUMN_WRAPPED_BYTES];
	pgseal_column_kek *kek = NULL,
			   *other = NULL;
	pgseal_column_key *key = NULL,
			   *same = NULL;
	uint64_t	one = 0,
				two = 0;

	memset(bytes, 7, sizeof(bytes));
	CHECK(pgseal_column_kek_new(bytes, 31, &kek) == PGSEAL_COLUMN_KEY_LENGTH);
	CHECK(pgseal_column_kek_new(NULL, 32, &kek) == PGSEAL_COLUMN_NULL_POINTER);
	CHECK(pgseal_column_kek_new(bytes, 32, NULL) == PGSEAL_COLUMN_NULL_POINTER);
	CHECK(kek == NULL);
	CHECK(pgseal_column_kek_new(bytes, 32, &kek) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_kek_from_passphrase((const uint8_t *) "secret", 6, bytes, PGSEAL_COLUMN_SALT_BYTES,
											64, 1, 1, &other) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_kek_from_passphrase((const uint8_t *) "secret", 6, bytes, 4,
											64, 1, 1, &other) == PGSEAL_COLUMN_KEY_LENGTH);
	CHECK(pgseal_column_kek_from_passphrase((const uint8_t *) "secret", 6, bytes, 16,
											64, 0, 1, &other) == PGSEAL_COLUMN_BAD_ARGUMENT);

	CHECK(pgseal_column_wrap_new(kek, DOMAIN, 0, wrapped) == PGSEAL_COLUMN_BAD_ARGUMENT);
	CHECK(pgseal_column_wrap_new(NULL, DOMAIN, 1, wrapped) == PGSEAL_COLUMN_NULL_POINTER);
	CHECK(pgseal_column_wrap_new(kek, DOMAIN, 1, NULL) == PGSEAL_COLUMN_NULL_POINTER);
	CHECK(pgseal_column_wrap_new(kek, DOMAIN, 1, wrapped) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_unwrap(other, DOMAIN, 1, wrapped, sizeof(wrapped), bare) == PGSEAL_COLUMN_WRONG_KEK);
	CHECK(pgseal_column_unwrap(kek, DOMAIN, 2, wrapped, sizeof(wrapped), bare) == PGSEAL_COLUMN_WRAP_DAMAGED);
	CHECK(pgseal_column_unwrap(kek, DOMAIN, 1, wrapped, 5, bare) == PGSEAL_COLUMN_WRAP_FORMAT);
	CHECK(pgseal_column_unwrap(kek, DOMAIN, 1, NULL, 69, bare) == PGSEAL_COLUMN_NULL_POINTER);
	CHECK(pgseal_column_unwrap(kek, DOMAIN, 1, wrapped, sizeof(wrapped), NULL) == PGSEAL_COLUMN_NULL_POINTER);
	CHECK(pgseal_column_unwrap(kek, DOMAIN, 1, wrapped, sizeof(wrapped), bare) == PGSEAL_COLUMN_OK);

	/* The bare key, the wrapped key and the key wrapped again under another KEK are the same key. */
	CHECK(pgseal_column_key_unwrap(kek, DOMAIN, 1, wrapped, sizeof(wrapped), &key) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_key_new(bare, sizeof(bare), DOMAIN, 1, &same) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_ff1_encrypt64(key, PGSEAL_COLUMN_TYPE_INT8, 42, &one) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_ff1_encrypt64(same, PGSEAL_COLUMN_TYPE_INT8, 42, &two) == PGSEAL_COLUMN_OK);
	CHECK(one == two && one != 42);
	pgseal_column_key_free(same);
	CHECK(pgseal_column_rewrap(kek, other, DOMAIN, 1, wrapped, sizeof(wrapped), again) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_rewrap(other, kek, DOMAIN, 1, wrapped, sizeof(wrapped), again) == PGSEAL_COLUMN_WRONG_KEK);
	CHECK(pgseal_column_key_unwrap(other, DOMAIN, 1, again, sizeof(again), &same) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_ff1_encrypt64(same, PGSEAL_COLUMN_TYPE_INT8, 42, &two) == PGSEAL_COLUMN_OK);
	CHECK(one == two);
	CHECK(pgseal_column_wrap(kek, DOMAIN, 1, bare, sizeof(bare), wrapped) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_wrap(kek, DOMAIN, 1, bare, 16, wrapped) == PGSEAL_COLUMN_KEY_LENGTH);

	CHECK(pgseal_column_key_domain(key) == DOMAIN && pgseal_column_key_version(key) == 1);
	CHECK(pgseal_column_key_domain(NULL) == 0 && pgseal_column_key_version(NULL) == 0);
	pgseal_column_wipe(bare, sizeof(bare));
	memset(bytes, 0, sizeof(bytes));
	CHECK(memcmp(bare, bytes, sizeof(bare)) == 0);
	pgseal_column_wipe(NULL, 0);
	pgseal_column_key_free(key);
	pgseal_column_key_free(same);
	pgseal_column_kek_free(kek);
	pgseal_column_kek_free(other);
	pgseal_column_key_free(NULL);
	pgseal_column_kek_free(NULL);
	pgseal_column_raw_free(NULL);
}

static pgseal_column_key *
some_key(uint32_t version)
{
	pgseal_column_key *key = NULL;
	uint8_t		material[64];

	memset(material, 3, sizeof(material));
	CHECK(pgseal_column_key_new(material, sizeof(material), DOMAIN, version, &key) == PGSEAL_COLUMN_OK);
	return key;
}

static void
numbers(void)
{
	pgseal_column_key *key = some_key(1);

	for (uint64_t i = 0; i < 1000; i++)
	{
		uint64_t	plain = i * UINT64_C(0x9E3779B97F4A7C15),
					sealed = 0,
					back = 0;
		uint32_t	sealed32 = 0,
					back32 = 0;

		CHECK(pgseal_column_ff1_encrypt64(key, PGSEAL_COLUMN_TYPE_TIMESTAMP, plain, &sealed) == PGSEAL_COLUMN_OK);
		CHECK(pgseal_column_ff1_decrypt64(key, PGSEAL_COLUMN_TYPE_TIMESTAMP, sealed, &back) == PGSEAL_COLUMN_OK);
		CHECK(back == plain && sealed != plain);
		CHECK(pgseal_column_ff1_encrypt60(key, PGSEAL_COLUMN_TYPE_NUMERIC, plain >> 4, &sealed) == PGSEAL_COLUMN_OK);
		CHECK(pgseal_column_ff1_decrypt60(key, PGSEAL_COLUMN_TYPE_NUMERIC, sealed, &back) == PGSEAL_COLUMN_OK);
		CHECK(back == plain >> 4 && sealed >> 60 == 0);
		CHECK(pgseal_column_ff1_encrypt32(key, PGSEAL_COLUMN_TYPE_DATE, (uint32_t) plain, &sealed32) == PGSEAL_COLUMN_OK);
		CHECK(pgseal_column_ff1_decrypt32(key, PGSEAL_COLUMN_TYPE_DATE, sealed32, &back32) == PGSEAL_COLUMN_OK);
		CHECK(back32 == (uint32_t) plain);
	}
	{
		uint64_t	out = 5;

		CHECK(pgseal_column_ff1_encrypt60(key, 1, UINT64_C(1) << 60, &out) == PGSEAL_COLUMN_DOMAIN && out == 5);
		CHECK(pgseal_column_ff1_encrypt64(key, 0, 1, &out) == PGSEAL_COLUMN_BAD_ARGUMENT && out == 5);
		CHECK(pgseal_column_ff1_encrypt64(key, 1 + PGSEAL_COLUMN_TYPE_MAX, 1, &out) == PGSEAL_COLUMN_BAD_ARGUMENT);
		CHECK(pgseal_column_ff1_encrypt64(NULL, 1, 1, &out) == PGSEAL_COLUMN_NULL_POINTER);
		CHECK(pgseal_column_ff1_encrypt64(key, 1, 1, NULL) == PGSEAL_COLUMN_NULL_POINTER);
	}
	pgseal_column_key_free(key);
}

typedef int (*call) (const pgseal_column_key *, uint32_t, const uint8_t *, size_t, uint8_t *, size_t, size_t *);

/* Buffers of exactly the needed size, on the heap, so that a sanitizer sees a byte too far. */
static void
authenticated(uint32_t version, int mode, call seal, call open, size_t overhead_max)
{
	pgseal_column_key *key = some_key(version);

	for (size_t len = 0; len < 100; len++)
	{
		size_t		size = mode == PGSEAL_COLUMN_MODE_DET ? pgseal_column_det_sealed_len(key, len)
			: pgseal_column_rnd_sealed_len(key, len);
		uint8_t    *plain = malloc(len ? len : 1),
				   *sealed = malloc(size),
				   *back = malloc(len ? len : 1);
		size_t		sealed_len = 0,
					plain_len = 9999,
					inspected_len = 0;
		int			found_mode = 0;
		uint32_t	found_version = 0;

		memset(plain, (int) len, len);
		CHECK(size <= len + overhead_max && size >= len + overhead_max - 4);
		CHECK(seal(key, 7, plain, len, sealed, size - 1, &sealed_len) == PGSEAL_COLUMN_BUFFER_TOO_SMALL);
		CHECK(seal(key, 7, len ? plain : NULL, len, sealed, size, &sealed_len) == PGSEAL_COLUMN_OK);
		CHECK(sealed_len == size);
		CHECK(pgseal_column_inspect(sealed, size, &found_mode, &found_version, &inspected_len) == PGSEAL_COLUMN_OK);
		CHECK(found_mode == mode && found_version == version && inspected_len == len);
		CHECK(pgseal_column_inspect(sealed, size, NULL, NULL, NULL) == PGSEAL_COLUMN_OK);
		CHECK(open(key, 7, sealed, size, len ? back : NULL, len, &plain_len) == PGSEAL_COLUMN_OK);
		CHECK(plain_len == len && memcmp(plain, back, len) == 0);
		if (len > 0)
			CHECK(open(key, 7, sealed, size, back, len - 1, &plain_len) == PGSEAL_COLUMN_BUFFER_TOO_SMALL);
		CHECK(open(key, 8, sealed, size, back, len, &plain_len) == PGSEAL_COLUMN_NOT_AUTHENTIC);
		CHECK(open(key, 7, NULL, size, back, len, &plain_len) == PGSEAL_COLUMN_NULL_POINTER);
		CHECK(open(key, 7, sealed, size, back, len, NULL) == PGSEAL_COLUMN_NULL_POINTER);
		sealed[size - 1] ^= 1;
		CHECK(open(key, 7, sealed, size, back, len, &plain_len) == PGSEAL_COLUMN_NOT_AUTHENTIC);
		sealed[0] = 0;
		CHECK(open(key, 7, sealed, size, back, len, &plain_len) == PGSEAL_COLUMN_NOT_SEALED);
		free(plain);
		free(sealed);
		free(back);
	}
	{
		uint8_t		out[64] = {0};
		size_t		n = 0;

		CHECK(seal(key, 7, out, (size_t) PGSEAL_COLUMN_MAX_PLAIN + 1, out, 64, &n) == PGSEAL_COLUMN_TOO_LONG);
		CHECK(seal(key, 0, out, 1, out + 1, 63, &n) == PGSEAL_COLUMN_BAD_ARGUMENT);
		CHECK(seal(key, UINT32_MAX, out, 1, out + 1, 63, &n) == PGSEAL_COLUMN_OK);
		CHECK(open(key, UINT32_MAX, out + 1, n, out, 1, &n) == PGSEAL_COLUMN_OK && n == 1);
		CHECK(seal(key, 7, out, SIZE_MAX, out, 64, &n) == PGSEAL_COLUMN_TOO_LONG);
	}
	pgseal_column_key_free(key);
}

static void
raw(void)
{
	/* pgcrypto: encrypt('hello', 'abcde', 'aes') */
	static const uint8_t known[16] = {
		0x0c, 0xe7, 0x4a, 0x52, 0xdd, 0x98, 0x23, 0x63, 0xb1, 0xbb, 0xa1, 0x9c, 0x8b, 0x67, 0xcc, 0xa4
	};
	pgseal_column_raw *handle = NULL;
	uint8_t		out[16],
				back[16];
	size_t		n = 0;
	int			mode = -1;

	CHECK(pgseal_column_raw_mode("aes-ecb/pad:none", 16, &mode) == PGSEAL_COLUMN_OK);
	CHECK(mode == PGSEAL_COLUMN_RAW_ECB_NOPAD);
	CHECK(pgseal_column_raw_mode("aes", 3, &mode) == PGSEAL_COLUMN_OK && mode == PGSEAL_COLUMN_RAW_CBC);
	CHECK(pgseal_column_raw_mode("bf", 2, &mode) == PGSEAL_COLUMN_BAD_ARGUMENT);
	CHECK(pgseal_column_raw_mode("\xff", 1, &mode) == PGSEAL_COLUMN_BAD_ARGUMENT);
	CHECK(pgseal_column_raw_new((const uint8_t *) "abcde", 5, 4, &handle) == PGSEAL_COLUMN_BAD_ARGUMENT);
	CHECK(pgseal_column_raw_new((const uint8_t *) "abcde", 5, mode, &handle) == PGSEAL_COLUMN_OK);
	CHECK(pgseal_column_raw_encrypt(handle, NULL, 0, (const uint8_t *) "hello", 5, out, 15, &n)
		  == PGSEAL_COLUMN_BUFFER_TOO_SMALL);
	CHECK(pgseal_column_raw_encrypt(handle, NULL, 0, (const uint8_t *) "hello", 5, out, 16, &n) == PGSEAL_COLUMN_OK);
	CHECK(n == 16 && memcmp(out, known, 16) == 0);
	CHECK(pgseal_column_raw_decrypt(handle, NULL, 0, out, 16, back, 16, &n) == PGSEAL_COLUMN_OK);
	CHECK(n == 5 && memcmp(back, "hello", 5) == 0);
	CHECK(pgseal_column_raw_decrypt(handle, NULL, 0, out, 15, back, 16, &n) == PGSEAL_COLUMN_BAD_RAW);
	CHECK(pgseal_column_raw_decrypt(NULL, NULL, 0, out, 16, back, 16, &n) == PGSEAL_COLUMN_NULL_POINTER);
	pgseal_column_raw_free(handle);
}

/* A forked backend: keys made before the fork work after it, and no random byte is drawn twice. */
static void
forked(void)
{
	pgseal_column_key *key = some_key(1);
	uint8_t		here[29],
				there[29];
	size_t		n = 0;
	int			ends[2];
	pid_t		child;

	CHECK(pgseal_column_rnd_seal(key, 7, NULL, 0, here, sizeof(here), &n) == PGSEAL_COLUMN_OK);
	CHECK(pipe(ends) == 0);
	child = fork();
	if (child == 0)
	{
		int			code = pgseal_column_rnd_seal(key, 7, NULL, 0, there, sizeof(there), &n);

		_exit(code != 0 || write(ends[1], there, sizeof(there)) != (ssize_t) sizeof(there));
	}
	CHECK(pgseal_column_rnd_seal(key, 7, NULL, 0, here, sizeof(here), &n) == PGSEAL_COLUMN_OK);
	CHECK(read(ends[0], there, sizeof(there)) == (ssize_t) sizeof(there));
	CHECK(memcmp(here, there, sizeof(here)) != 0);
	CHECK(pgseal_column_rnd_open(key, 7, there, sizeof(there), NULL, 0, &n) == PGSEAL_COLUMN_OK);
	waitpid(child, NULL, 0);
	pgseal_column_key_free(key);
}

int
main(void)
{
	uint8_t		random[100],
				zero[100] = {0};

	CHECK(pgseal_column_abi() == PGSEAL_COLUMN_ABI);
	CHECK(strcmp(pgseal_column_error_text(PGSEAL_COLUMN_OK), "success") == 0);
	CHECK(strstr(pgseal_column_error_text(PGSEAL_COLUMN_NOT_AUTHENTIC), "tampered") != NULL);
	CHECK(strcmp(pgseal_column_error_text(-1), "unknown error") == 0);
	CHECK(pgseal_column_random(random, sizeof(random)) == PGSEAL_COLUMN_OK);
	CHECK(memcmp(random, zero, sizeof(zero)) != 0);
	CHECK(pgseal_column_random(NULL, 1) == PGSEAL_COLUMN_NULL_POINTER);
	keys();
	numbers();
	authenticated(1, PGSEAL_COLUMN_MODE_DET, pgseal_column_det_seal, pgseal_column_det_open,
				  PGSEAL_COLUMN_DET_OVERHEAD_MAX);
	authenticated(4000000000U, PGSEAL_COLUMN_MODE_DET, pgseal_column_det_seal, pgseal_column_det_open,
				  PGSEAL_COLUMN_DET_OVERHEAD_MAX);
	authenticated(30, PGSEAL_COLUMN_MODE_RND, pgseal_column_rnd_seal, pgseal_column_rnd_open,
				  PGSEAL_COLUMN_RND_OVERHEAD_MAX);
	authenticated(31, PGSEAL_COLUMN_MODE_RND, pgseal_column_rnd_seal, pgseal_column_rnd_open,
				  PGSEAL_COLUMN_RND_OVERHEAD_MAX);
	raw();
	forked();
	printf("%d failed\n", failures);
	return failures != 0;
}
