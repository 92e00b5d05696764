//! Sets the cfg that names a model checker where its feature is on. Features, unlike RUSTFLAGS, rebuild this crate only,
//! so that all three builds of the tests share one folder and every other crate in it.

fn main() {
    for (model, feature) in [("loom", "CARGO_FEATURE_LOOM"), ("shuttle", "CARGO_FEATURE_SHUTTLE")] {
        println!("cargo::rustc-check-cfg=cfg({model})");
        if std::env::var_os(feature).is_some() {
            println!("cargo::rustc-cfg={model}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}
