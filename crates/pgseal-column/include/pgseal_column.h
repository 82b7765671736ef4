/*
 * pgseal_column.h: the column ciphers of pgseal, as a static library.
 *
 * spec/column-cipher.md says which bytes each mode writes and what the bytes reveal.
 *
 * Rules for every function:
 *  - It returns PGSEAL_COLUMN_OK (0) or another PGSEAL_COLUMN_* code; pgseal_column_error_text()
 *    has a sentence for each code. Results are written through pointers only with PGSEAL_COLUMN_OK.
 *  - The library keeps no pointer argument; a handle holds copies. Each buffer has a length; the
 *    pointer to an empty buffer may be NULL. Input and output must not overlap.
 *  - Sealing or opening a value does not allocate, longjmp, exit or abort. Only the functions that
 *    make a handle allocate (malloc); the caller frees each handle once.
 *  - A handle never changes after it is made, so any number of threads and forked children may use
 *    it. Freeing a handle wipes it.
 *  - Messages contain no secret bytes.
 */
#ifndef PGSEAL_COLUMN_H
#define PGSEAL_COLUMN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header, raised when a function changes; compare with pgseal_column_abi(). */
#define PGSEAL_COLUMN_ABI 1

/* ---- results ---- */

enum
{
	PGSEAL_COLUMN_OK = 0,
	/* the caller's fault */
	PGSEAL_COLUMN_NULL_POINTER = 1,		/* NULL where a pointer is needed */
	PGSEAL_COLUMN_BUFFER_TOO_SMALL = 2, /* the output does not fit */
	PGSEAL_COLUMN_KEY_LENGTH = 3,		/* key material of a length that is not allowed */
	PGSEAL_COLUMN_BAD_ARGUMENT = 4,		/* a type code, key version, mode or cost out of range */
	PGSEAL_COLUMN_TOO_LONG = 5,			/* a value longer than PGSEAL_COLUMN_MAX_PLAIN */
	PGSEAL_COLUMN_DOMAIN = 6,			/* FF1: a domain that is too small or too large */
	/* the data's fault */
	PGSEAL_COLUMN_NOT_SEALED = 10,		/* does not begin or is not as long as a sealed value */
	PGSEAL_COLUMN_OTHER_MODE = 11,		/* a sealed value, but of another mode */
	PGSEAL_COLUMN_OTHER_VERSION = 12,	/* sealed under another version of the column key */
	PGSEAL_COLUMN_NOT_AUTHENTIC = 13,	/* tampered with, or of another key, domain or type */
	PGSEAL_COLUMN_BAD_RAW = 14,			/* raw AES: length or padding is wrong (wrong key?) */
	/* wrapped column keys */
	PGSEAL_COLUMN_WRONG_KEK = 20,		/* wrapped under another KEK */
	PGSEAL_COLUMN_WRAP_DAMAGED = 21,	/* right KEK, but damaged, or of another domain or version */
	PGSEAL_COLUMN_WRAP_FORMAT = 22,		/* not a wrapped column key, or one of a newer pgseal */
	/* the machine's fault */
	PGSEAL_COLUMN_NO_RANDOM = 30,		/* the random generator failed */
	PGSEAL_COLUMN_NO_MEMORY = 31,
	PGSEAL_COLUMN_INTERNAL = 32,		/* a bug in pgseal */
	PGSEAL_COLUMN_NOT_APPROVED = 33		/* a FIPS build has no sealed columns */
};

/* A static, NUL-terminated English sentence without the full stop, for any code. */
extern const char *pgseal_column_error_text(int code);

/* PGSEAL_COLUMN_ABI of the library that was linked. */
extern uint32_t pgseal_column_abi(void);

/* ---- types ---- */

/*
 * The type of a value. It is bound into every ciphertext, so that equal bytes of two types have
 * different ciphertexts. A sealed value does not contain the number, but opens only with it. FF1
 * accepts 1 to PGSEAL_COLUMN_TYPE_MAX. Authenticated values accept any number but 0; above
 * PGSEAL_COLUMN_TYPE_MAX, they take some nanoseconds longer. Types whose bytes have different
 * meanings must have different numbers.
 */
enum
{
	PGSEAL_COLUMN_TYPE_INT4 = 1,
	PGSEAL_COLUMN_TYPE_INT8 = 2,
	PGSEAL_COLUMN_TYPE_DATE = 3,
	PGSEAL_COLUMN_TYPE_TIMESTAMP = 4,
	PGSEAL_COLUMN_TYPE_TIMESTAMPTZ = 5,
	PGSEAL_COLUMN_TYPE_NUMERIC = 6,
	PGSEAL_COLUMN_TYPE_TEXT = 7,
	PGSEAL_COLUMN_TYPE_BYTEA = 8,
	PGSEAL_COLUMN_TYPE_UUID = 9,
	PGSEAL_COLUMN_TYPE_INT2 = 10,
	PGSEAL_COLUMN_TYPE_FLOAT4 = 11,
	PGSEAL_COLUMN_TYPE_FLOAT8 = 12,
	PGSEAL_COLUMN_TYPE_BOOL = 13,
	PGSEAL_COLUMN_TYPE_TIME = 14,
	PGSEAL_COLUMN_TYPE_INTERVAL = 15,
	PGSEAL_COLUMN_TYPE_JSONB = 16,
	PGSEAL_COLUMN_TYPE_JSON = 17,
	PGSEAL_COLUMN_TYPE_INET = 18,
	PGSEAL_COLUMN_TYPE_CIDR = 19,
	PGSEAL_COLUMN_TYPE_MACADDR = 20,
	PGSEAL_COLUMN_TYPE_TIMETZ = 21,
	PGSEAL_COLUMN_TYPE_XML = 22,
	PGSEAL_COLUMN_TYPE_MAX = 63
};

/* ---- the key-encryption key (KEK) and wrapped column keys ---- */

#define PGSEAL_COLUMN_KEY_BYTES 32		/* a column key or a KEK */
#define PGSEAL_COLUMN_WRAPPED_BYTES 69	/* a wrapped column key */
#define PGSEAL_COLUMN_SALT_BYTES 16		/* salt of a passphrase */

typedef struct pgseal_column_kek pgseal_column_kek;

/* Makes a KEK from 32 bytes. */
extern int	pgseal_column_kek_new(const uint8_t *kek, size_t kek_len, pgseal_column_kek **handle);

/*
 * Derives a KEK from a passphrase (1 to 4096 bytes) with Argon2id (RFC 9106): salt 8 to 64 bytes,
 * memory in KiB (8 per lane to 4 GiB), passes (1 to 1024), lanes (1 to 64). PGSEAL_COLUMN_ARGON2_*
 * are the defaults of pgseal's keyrings, which take a tenth of a second and 64 MiB.
 */
#define PGSEAL_COLUMN_ARGON2_MEMORY_KIB 65536
#define PGSEAL_COLUMN_ARGON2_PASSES 3
#define PGSEAL_COLUMN_ARGON2_LANES 1
extern int	pgseal_column_kek_from_passphrase(const uint8_t *passphrase, size_t passphrase_len,
											  const uint8_t *salt, size_t salt_len,
											  uint32_t memory_kib, uint32_t passes, uint32_t lanes,
											  pgseal_column_kek **handle);

/* The handle may be NULL. */
extern void pgseal_column_kek_free(pgseal_column_kek *handle);

/*
 * Makes a new random column key and wraps it for its domain and key version (1 to 2^32 - 1). The
 * caller never sees the bare key.
 */
extern int	pgseal_column_wrap_new(const pgseal_column_kek *kek, uint64_t domain_id, uint32_t key_version,
								   uint8_t wrapped[PGSEAL_COLUMN_WRAPPED_BYTES]);

/* Wraps a given column key of PGSEAL_COLUMN_KEY_BYTES. */
extern int	pgseal_column_wrap(const pgseal_column_kek *kek, uint64_t domain_id, uint32_t key_version,
							   const uint8_t *column_key, size_t column_key_len,
							   uint8_t wrapped[PGSEAL_COLUMN_WRAPPED_BYTES]);

/* Unwraps a column key with `from` and wraps it under `to`. Sealed values do not change. */
extern int	pgseal_column_rewrap(const pgseal_column_kek *from, const pgseal_column_kek *to,
								 uint64_t domain_id, uint32_t key_version,
								 const uint8_t *wrapped, size_t wrapped_len,
								 uint8_t rewrapped[PGSEAL_COLUMN_WRAPPED_BYTES]);

/* Returns the bare column key. The caller must wipe it (pgseal_column_wipe). */
extern int	pgseal_column_unwrap(const pgseal_column_kek *kek, uint64_t domain_id, uint32_t key_version,
								 const uint8_t *wrapped, size_t wrapped_len,
								 uint8_t column_key[PGSEAL_COLUMN_KEY_BYTES]);

/* ---- column keys ---- */

typedef struct pgseal_column_key pgseal_column_key;

/*
 * A column key, with all sub-keys derived and all key schedules made (about 10 microseconds, about
 * 3 KB). `domain_id` is any number, the same for all columns that share keys and can be joined; it
 * must never change. `key_version`: 1 to 2^32 - 1; versions below 31 make authenticated values 4
 * bytes shorter.
 */

/* Makes a handle from a wrapped column key; the usual way. */
extern int	pgseal_column_key_unwrap(const pgseal_column_kek *kek, uint64_t domain_id, uint32_t key_version,
									 const uint8_t *wrapped, size_t wrapped_len,
									 pgseal_column_key **handle);

/*
 * Makes a handle from 32 to 64 bytes of key material. With the 32 bytes of pgseal_column_unwrap(),
 * and the same domain and version, the result equals that of pgseal_column_key_unwrap().
 */
extern int	pgseal_column_key_new(const uint8_t *material, size_t material_len,
								  uint64_t domain_id, uint32_t key_version,
								  pgseal_column_key **handle);

/* The handle may be NULL. */
extern void pgseal_column_key_free(pgseal_column_key *handle);

extern uint64_t pgseal_column_key_domain(const pgseal_column_key *handle);	/* 0 for NULL */
extern uint32_t pgseal_column_key_version(const pgseal_column_key *handle); /* 0 for NULL */

/* ---- deterministic, format-preserving: FF1 (SP 800-38G), no integrity ---- */

/*
 * Maps every number of 32 (64) bits to another number, and back. A wrong key, domain or type is not
 * detected: it gives another number. Signed values: cast to unsigned and back.
 */
extern int	pgseal_column_ff1_encrypt32(const pgseal_column_key *key, uint32_t type, uint32_t plain,
										uint32_t *sealed);
extern int	pgseal_column_ff1_decrypt32(const pgseal_column_key *key, uint32_t type, uint32_t sealed,
										uint32_t *plain);
extern int	pgseal_column_ff1_encrypt64(const pgseal_column_key *key, uint32_t type, uint64_t plain,
										uint64_t *sealed);
extern int	pgseal_column_ff1_decrypt64(const pgseal_column_key *key, uint32_t type, uint64_t sealed,
										uint64_t *plain);

/* The same for numbers below 2^60; PGSEAL_COLUMN_DOMAIN for any other number. */
extern int	pgseal_column_ff1_encrypt60(const pgseal_column_key *key, uint32_t type, uint64_t plain,
										uint64_t *sealed);
extern int	pgseal_column_ff1_decrypt60(const pgseal_column_key *key, uint32_t type, uint64_t sealed,
										uint64_t *plain);

/* ---- authenticated values ---- */

/* The most bytes that sealing adds. The *_sealed_len functions give the exact length. */
#define PGSEAL_COLUMN_DET_OVERHEAD_MAX 21	/* 17 while the key version is below 31 */
#define PGSEAL_COLUMN_RND_OVERHEAD_MAX 33	/* 29 while the key version is below 31 */
#define PGSEAL_COLUMN_MAX_PLAIN 1073741823	/* 2^30 - 1 bytes, as PostgreSQL's varlena */

enum
{
	PGSEAL_COLUMN_MODE_DET = 1,
	PGSEAL_COLUMN_MODE_RND = 2
};

/*
 * Reads mode, key version and length of the plain value from a sealed value. This needs no key and
 * authenticates nothing. Each result pointer may be NULL. PGSEAL_COLUMN_NOT_SEALED if the bytes
 * cannot be a sealed value.
 */
extern int	pgseal_column_inspect(const uint8_t *sealed, size_t sealed_len,
								  int *mode, uint32_t *key_version, size_t *plain_len);

/*
 * Deterministic: AES-SIV (RFC 5297). Equal values of a type, domain and key version give equal
 * bytes. Any length, also empty.
 *
 * The output buffer has `*_cap` bytes; `*_len` gets the number of bytes written. If a value is not
 * authentic, nothing of it is left in the output buffer.
 */
extern size_t pgseal_column_det_sealed_len(const pgseal_column_key *key, size_t plain_len);
extern int	pgseal_column_det_seal(const pgseal_column_key *key, uint32_t type,
								   const uint8_t *plain, size_t plain_len,
								   uint8_t *sealed, size_t sealed_cap, size_t *sealed_len);
extern int	pgseal_column_det_open(const pgseal_column_key *key, uint32_t type,
								   const uint8_t *sealed, size_t sealed_len,
								   uint8_t *plain, size_t plain_cap, size_t *plain_len);

/* Randomised: AES-256-GCM with a random nonce. At most 2^32 values under one key version. */
extern size_t pgseal_column_rnd_sealed_len(const pgseal_column_key *key, size_t plain_len);
extern int	pgseal_column_rnd_seal(const pgseal_column_key *key, uint32_t type,
								   const uint8_t *plain, size_t plain_len,
								   uint8_t *sealed, size_t sealed_cap, size_t *sealed_len);
extern int	pgseal_column_rnd_open(const pgseal_column_key *key, uint32_t type,
								   const uint8_t *sealed, size_t sealed_len,
								   uint8_t *plain, size_t plain_cap, size_t *plain_len);

/* ---- raw AES, the bytes of pgcrypto's encrypt(data, key, 'aes') ---- */

typedef struct pgseal_column_raw pgseal_column_raw;

enum
{
	PGSEAL_COLUMN_RAW_CBC = 0,			/* 'aes', 'aes-cbc' */
	PGSEAL_COLUMN_RAW_ECB = 1,			/* 'aes-ecb' */
	PGSEAL_COLUMN_RAW_CBC_NOPAD = 2,	/* 'aes-cbc/pad:none' */
	PGSEAL_COLUMN_RAW_ECB_NOPAD = 3		/* 'aes-ecb/pad:none' */
};

/* The mode for a cipher name of pgcrypto; PGSEAL_COLUMN_BAD_ARGUMENT for any other name. */
extern int	pgseal_column_raw_mode(const char *name, size_t name_len, int *mode);

/*
 * Makes a key as pgcrypto does: zeros are appended up to 16, 24 or 32 bytes, and bytes after the
 * first 32 are ignored. Make a handle once and keep it, because making one takes most of the time.
 */
extern int	pgseal_column_raw_new(const uint8_t *key, size_t key_len, int mode, pgseal_column_raw **handle);
extern void pgseal_column_raw_free(pgseal_column_raw *handle);

/*
 * `iv`: as for pgcrypto's encrypt_iv: extended with zeros or truncated to 16 bytes; length 0 gives
 * encrypt(). Encrypting needs a buffer of plain_len + 16 bytes, decrypting one of cipher_len.
 */
extern int	pgseal_column_raw_encrypt(const pgseal_column_raw *raw, const uint8_t *iv, size_t iv_len,
									  const uint8_t *plain, size_t plain_len,
									  uint8_t *out, size_t out_cap, size_t *out_len);
extern int	pgseal_column_raw_decrypt(const pgseal_column_raw *raw, const uint8_t *iv, size_t iv_len,
									  const uint8_t *cipher, size_t cipher_len,
									  uint8_t *out, size_t out_cap, size_t *out_len);

/* ---- other functions ---- */

/* Random bytes for salts and domain ids. A forked child does not repeat them. */
extern int	pgseal_column_random(uint8_t *bytes, size_t len);

/* Zeroes memory that held secrets. No compiler optimises this away. */
extern void pgseal_column_wipe(void *bytes, size_t len);

#ifdef __cplusplus
}
#endif

#endif							/* PGSEAL_COLUMN_H */
