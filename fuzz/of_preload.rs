// The modules of the library that `preload.rs` wants, and it; a target includes this text.

#[allow(dead_code)]
#[path = "../crates/pgseal-preload/src/linker.rs"]
mod linker;
#[allow(dead_code)]
#[path = "../crates/pgseal-preload/src/module.rs"]
mod module;
#[allow(dead_code)]
#[path = "../crates/pgseal-preload/src/paths.rs"]
mod paths;
#[allow(dead_code)]
#[path = "../crates/pgseal-preload/src/texts.rs"]
mod texts;
#[allow(dead_code)]
#[path = "preload.rs"]
mod bodies;
