//! A bounded run of the fuzz target of the picture reader, the same on every machine: thousands of damaged
//! files, from none of which it may fail to come back.

#[path = "../../graph/tests/trial/mod.rs"]
mod trial;

use monosplit_image::Picture;
use trial::Trial;

#[test]
fn slow_hostile_pictures_are_survived() {
    let trial = Trial { name: "image", iterations: 100_000, memory: 64 << 20, memory_per_byte: 1 << 16 };
    trial.run(|bytes| Picture::decode(bytes).is_ok());
}
