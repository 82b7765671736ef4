//! Sharding: `postgres_fdw` distributes a table over sealed servers, each with its own keys.
//! docs/sharding.md shows the statements.

use pgseal_scenarios::Node;
use pgseal_testkit::{Cluster, Sealing};

const MARKER: &str = "canary-shards-Zq7x";

fn cluster(suite: &str, key: &str) -> Node {
    let sealing = Sealing { suite: suite.to_owned(), key: key.repeat(32) };
    let builder = Cluster::builder().sealed(sealing).programs(pgseal_scenarios::programs());
    let mut node = Node::create(builder, &[("max_prepared_transactions", "4")]);
    node.start();
    node.sql("create extension amcheck");
    node
}

const COLUMNS: &str = "(customer int not null, id bigint not null, amount numeric, note text)";
const SUM: &str = "select count(*), sum(amount), sum(hashtextextended(o::text, 3)::numeric) from";

#[test]
#[ignore = "long: make test-scenarios"]
fn a_table_is_spread_over_sealed_servers_by_postgres_fdw() {
    let mut shards = [cluster("aes-256-gcm", "1a"), cluster("aes-256-xts", "2b")];
    let mut front = cluster("aes-128-gcm", "3c");
    front.sql(&format!(
        "create extension postgres_fdw;; create table orders {COLUMNS} partition by hash (customer);;
         create table customers (id int primary key, name text);;
         insert into customers select g, '{MARKER} ' || g from generate_series(1, 1000) g;;
         analyze customers"
    ));
    for (n, shard) in shards.iter().enumerate() {
        shard.sql(&format!(
            "create table orders_{n} {COLUMNS};; alter table orders_{n} add primary key (customer, id)"
        ));
        front.sql(&format!(
            "create server shard_{n} foreign data wrapper postgres_fdw options \
               (host '{}', port '{}', dbname 'postgres', fetch_size '5000', batch_size '500', \
                async_capable 'true', use_remote_estimate 'true');;
             create user mapping for postgres server shard_{n} options (user 'postgres');;
             create foreign table orders_{n} partition of orders \
               for values with (modulus 2, remainder {n}) server shard_{n}",
            shard.home().display(),
            shard.port()
        ));
    }
    front.sql(&format!(
        "insert into orders select g % 1000 + 1, g, g % 77, '{MARKER} order ' || g \
         from generate_series(1, 40000) g;;
         update orders set note = note || ' paid' where customer % 10 = 0;;
         delete from orders where id % 100 = 0"
    ));
    let truth = front.sql(&format!("{SUM} orders o"));
    assert!(truth.starts_with("39600|"), "{truth}");
    let counts: Vec<u64> = shards
        .iter()
        .enumerate()
        .map(|(n, shard)| {
            shard.sql(&format!("select count(*) from orders_{n}")).parse().expect("a number")
        })
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 39600);
    assert!(counts.iter().all(|count| *count > 15000), "{counts:?}");
    // A query about one customer uses one shard; a query about all customers uses both.
    let plan = front.sql("explain (costs off) select * from orders where customer = 7");
    assert_eq!(plan.matches("Foreign Scan").count(), 1, "{plan}");
    let joined = front.sql(
        "select count(*), sum(o.amount) from orders o join customers c on c.id = o.customer \
         where c.name like '% 7%'",
    );
    let by_hand =
        front.sql("select count(*), sum(amount) from orders where customer::text like '7%'");
    assert_eq!(joined, by_hand);

    // A shard is killed during a transaction, which is rolled back.
    let mut open = front.session();
    open.sql("begin; update orders_1 set amount = amount + 1");
    shards[1].kill9();
    let said = open.run("commit").unwrap_or_default();
    assert!(said.contains("ERROR") || said.contains("WARNING"), "{said}");
    drop(open);
    assert!(front.try_sql("select count(*) from orders").is_err(), "a shard is missing");
    shards[1].start();
    assert_eq!(front.sql(&format!("{SUM} orders o")), truth);

    front.kill9();
    front.start();
    assert_eq!(front.sql(&format!("{SUM} orders o")), truth);
    front.stop_sound(MARKER);
    for shard in &mut shards {
        shard.stop_sound(MARKER);
    }
}
