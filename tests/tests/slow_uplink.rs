//! A slow line to the origin: it takes as long as it takes.

use forebay_tests::{S3Server, Sandbox, soak, write_rnd};

/// A pack of 64 MiB takes half a minute at 2 MiB/s, which is longer than an answer may be silent.
#[test]
fn a_push_over_a_slow_line_is_not_cut_off() {
    if !soak() {
        return;
    }
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "slow");
    write_rnd(sandbox.path("S/file"), 1, 64 << 20);
    server.set_upload_rate(Some(2 << 20));
    sandbox.command(["push", "S", "set"]).json().limit_s(300).run().ok();
    let received = server.received_bytes("pack/");
    assert!(received < 66 << 20, "{received} bytes were sent for 64 MiB");
}
