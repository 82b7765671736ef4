/*
 * module.c: a shared object that contains the library, as an extension does.
 */
#include "pgseal_column.h"

int
module_entry(void)
{
	uint8_t		bytes[PGSEAL_COLUMN_WRAPPED_BYTES] = {0};
	pgseal_column_kek *kek;
	pgseal_column_key *key;
	pgseal_column_raw *raw;
	uint64_t	number = 0;
	size_t		len = 0;

	return pgseal_column_kek_from_passphrase(bytes, 32, bytes, 16, 64, 1, 1, &kek) ||
		pgseal_column_wrap_new(kek, 1, 1, bytes) ||
		pgseal_column_key_unwrap(kek, 1, 1, bytes, sizeof(bytes), &key) ||
		pgseal_column_ff1_encrypt64(key, PGSEAL_COLUMN_TYPE_INT8, 1, &number) ||
		pgseal_column_det_seal(key, 7, NULL, 0, bytes, sizeof(bytes), &len) ||
		pgseal_column_rnd_seal(key, 7, NULL, 0, bytes, sizeof(bytes), &len) ||
		pgseal_column_raw_new(bytes, 32, PGSEAL_COLUMN_RAW_CBC, &raw) ||
		pgseal_column_raw_encrypt(raw, NULL, 0, NULL, 0, bytes, sizeof(bytes), &len);
}
