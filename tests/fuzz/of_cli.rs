// The modules of the program that `cli.rs` needs, and `cli.rs`; fuzz targets include this text.

#[allow(dead_code)]
#[path = "../../crates/pgseal-cli/src/conf_text.rs"]
mod conf_text;
#[allow(dead_code)]
#[path = "../../crates/pgseal-cli/src/control_data.rs"]
mod control_data;
#[allow(dead_code)]
#[path = "../../crates/pgseal-cli/src/proc.rs"]
mod proc;
#[allow(dead_code)]
#[path = "../../crates/pgseal-cli/src/server_files.rs"]
mod server_files;
#[allow(dead_code)]
#[path = "cli.rs"]
mod bodies;
