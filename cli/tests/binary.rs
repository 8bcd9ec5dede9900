//! The binary starts. Its tests proper are in the `tests` crate; this one makes every test run build the binary anew.

use std::process::Command;

#[test]
fn the_binary_says_what_it_is() {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay")).arg("--version").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with(concat!("forebay ", env!("CARGO_PKG_VERSION"))), "{said}");
}
