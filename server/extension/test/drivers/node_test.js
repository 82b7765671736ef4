// Sealed columns through node-postgres: strings, and with pgseal.base_types what plain columns are.
const assert = require('node:assert');
const { Client } = require('pg');

async function main(url) {
    const plain = new Client({ connectionString: url, options: '-c pgseal.base_types=on' });
    const as_it_is = new Client({ connectionString: url });
    await plain.connect();
    await as_it_is.connect();
    await plain.query({
        name: 'insert',
        text: 'INSERT INTO card (id, code, holder, balance, at, raw) VALUES ($1, $2, $3, $4, $5, $6)',
        values: ['1099511627783', -5, 'Ada Lovelace', '12345.60', new Date('2024-02-29T12:00:00Z'), Buffer.from([0, 255])],
    });
    const select = { name: 'select', text: 'SELECT code, holder, balance, at, raw FROM card WHERE id = $1 AND code = $2', values: ['1099511627783', -5] };
    const row = (await plain.query(select)).rows[0];
    assert.strictEqual(row.code, -5);
    assert.strictEqual(row.holder, 'Ada Lovelace');
    assert.strictEqual(row.balance, '12345.60'); // as node-postgres gives every numeric
    assert.strictEqual(row.at.getTime(), Date.UTC(2024, 1, 29, 12));
    assert.deepStrictEqual(row.raw, Buffer.from([0, 255]));
    const other = (await as_it_is.query(select)).rows[0];
    assert.strictEqual(other.code, '-5');
    assert.strictEqual(other.raw, '\\x00ff');
    assert.strictEqual(typeof other.at, 'string');
    await plain.end();
    await as_it_is.end();
    console.log('node-postgres', require('pg/package.json').version, 'passed');
}

main(process.argv[2]).catch((error) => {
    console.error(error);
    process.exit(1);
});
