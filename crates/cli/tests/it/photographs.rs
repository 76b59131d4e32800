//! The real networks on real photographs, where `../shared` has them: top-1 is ONNX Runtime's, image for image, starting from
//! the JPEG. `scripts/compare_top1.py` made the classes, and compares all images.

use crate::program::succeeds;
use monosplit_testing::shared;

const CLASSES: &str = include_str!("../fixtures/top1.csv");

const OPTIONS: [(&str, &[&str]); 4] = [
    ("pets-small", &["--fit", "squash", "--filter", "bicubic"]),
    ("resnet18-imagenet", &[]),
    ("squeezenet1.1-imagenet", &["--preset", "imagenet-bgr"]),
    ("vgg16-pets", &[]),
];

#[test]
fn slow_top_1_is_onnx_runtimes() {
    let rows: Vec<Vec<&str>> = CLASSES.lines().map(|line| line.split(',').collect()).collect();
    let Some(images) = shared("data/pets/test/images") else { return };
    for (column, (name, options)) in OPTIONS.iter().enumerate() {
        assert_eq!(rows[0][column + 1], *name);
        let Some(model) = shared(&format!("models/{name}.onnx")) else { return };
        let mut arguments = vec!["run".to_owned(), model.to_str().unwrap().to_owned()];
        arguments.extend(rows[1..].iter().map(|row| images.join(row[0]).to_str().unwrap().to_owned()));
        arguments.extend(options.iter().map(|&word| word.to_owned()));
        arguments.extend(["--top", "1", "--json"].map(str::to_owned));
        let said = succeeds(arguments).out;
        let found: Vec<&str> =
            said.split("\"class\": ").skip(1).map(|rest| rest.split(',').next().unwrap()).collect();
        let expected: Vec<&str> = rows[1..].iter().map(|row| row[column + 1]).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn chelsea_is_a_cat() {
    let (Some(model), Some(picture)) = (shared("models/resnet18-imagenet.onnx"), shared("data/chelsea.png"))
    else {
        return;
    };
    let said = succeeds(["run".as_ref(), model.as_os_str(), picture.as_os_str()]).out;
    assert!(
        said.lines().skip(1).take(3).all(|line| line.contains("cat") || line.contains("tabby")),
        "{said}"
    );
}
