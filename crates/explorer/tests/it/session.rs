//! Answers about the built-in network and photograph.

use monosplit::image::Picture;
use monosplit::{Model, Tensor, assets};
use monosplit_explorer::{Interruption, Response, Session, Values};
use monosplit_testing::relative_error;
use serde_json::{Value, json};

/// A session with the built-in network and photograph.
pub(crate) fn opened() -> Session {
    let mut session = Session::default();
    for (request, bytes) in [
        (json!({"type": "open-network", "name": "pets-small.onnx"}), assets::PETS_SMALL),
        (json!({"type": "open-picture", "name": "chelsea.png"}), assets::CHELSEA),
    ] {
        let response = session.handle(request.to_string().as_bytes(), bytes);
        assert_eq!(response.error(), None);
    }
    session
}

pub(crate) fn ask(session: &mut Session, request: &Value) -> Response {
    let response = session.handle(request.to_string().as_bytes(), &[]);
    assert_eq!(response.error(), None, "{request}");
    response
}

fn floats<'a>(response: &'a Response, name: &str) -> &'a [f32] {
    let array = response.arrays().iter().find(|array| array.name == name).expect(name);
    match &array.values {
        Values::F32(values) => values,
        Values::U8(_) => panic!("{name} holds bytes"),
    }
}

fn bytes<'a>(response: &'a Response, name: &str) -> &'a [u8] {
    let array = response.arrays().iter().find(|array| array.name == name).expect(name);
    match &array.values {
        Values::U8(values) => values,
        Values::F32(_) => panic!("{name} holds numbers"),
    }
}

fn photograph() -> Picture {
    Picture::decode(assets::CHELSEA).unwrap()
}

fn model() -> Model {
    Model::options().read("pets-small.onnx", assets::PETS_SMALL).unwrap()
}

/// `max |a − b| / max |b|`
fn far(a: &[f32], b: &[f32]) -> f64 {
    let largest = b.iter().fold(0f64, |most, v| most.max(f64::from(v.abs())));
    let apart = a.iter().zip(b).fold(0f64, |most, (a, b)| most.max(f64::from((a - b).abs())));
    assert_eq!(a.len(), b.len());
    apart / largest
}

#[test]
fn classes_are_those_of_the_network_alone() {
    let mut session = opened();
    let found =
        ask(&mut session, &json!({"type": "classes", "subject": {"picture": 0}, "count": 3, "and": [36]}));
    let explanation = model().explain(&photograph()).unwrap();
    let listed = found.header()["classes"].as_array().unwrap();
    assert_eq!(listed.len(), 4);
    for (row, ranked) in listed.iter().zip(&explanation.ranking).take(3) {
        assert_eq!(row["class"], ranked.class);
        assert_eq!(row["score"], ranked.score);
    }
    assert_eq!(listed[3]["class"], 36);
    assert_eq!(bytes(&found, "picture"), explanation.picture().unwrap().rgb());
}

#[test]
fn maps_have_the_bits_of_the_library_at_every_alpha() {
    let mut session = opened();
    let model = model();
    for alpha in [0.0, 0.17, 0.4, 0.5] {
        let request = json!({
            "type": "explain", "subject": {"picture": 0}, "alpha": alpha, "class": 5,
            "maps": [{"method": "splitcam"}, {"method": "splitgrad", "layer": "layer2.1.conv2"}, {"method": "gradcam"}],
        });
        let found = ask(&mut session, &request);
        let expected = [
            model.explainer("splitcam").alpha(alpha),
            model.explainer("splitgrad").layer("layer2.1.conv2").alpha(alpha),
            model.explainer("gradcam"),
        ];
        for (index, explainer) in expected.into_iter().enumerate() {
            let explanation = explainer.class(5).explain(&photograph()).unwrap();
            let expected = explanation.map.values.to_f32();
            assert_eq!(floats(&found, &format!("values {index}")), &*expected);
            assert_eq!(found.header()["maps"][index]["layer"], json!(explanation.layer));
        }
        assert_eq!(found.header()["explained"]["class"], 5);
    }
}

/// `δᵍ − δʰ` is the gradient, so that the difference of the two SplitCAMs is the gradient times the activations, added up over
/// channels: HiResCAM without its ReLU.
#[test]
fn the_difference_of_the_streams_is_hirescam() {
    let mut session = opened();
    let request = json!({
        "type": "explain", "subject": {"picture": 0}, "alpha": 0.3, "streams": true,
        "maps": [{"method": "splitcam", "layer": "layer3.0.conv1"}, {"method": "hirescam", "layer": "layer3.0.conv1"}],
    });
    let found = ask(&mut session, &request);
    let streams: Vec<&Value> =
        found.header()["maps"].as_array().unwrap().iter().map(|map| &map["stream"]).collect();
    assert_eq!(streams, [&json!("g"), &json!("h"), &json!("difference"), &Value::Null]);
    assert!(far(floats(&found, "values 2"), floats(&found, "values 3")) < 1e-4);
    let sum: Vec<f32> =
        floats(&found, "values 1").iter().zip(floats(&found, "values 2")).map(|(h, d)| h + d).collect();
    assert!(far(&sum, floats(&found, "values 0")) < 1e-5);
}

/// The gradient of a difference is the difference of the gradients.
#[test]
fn a_contrast_is_the_difference_of_two_classes() {
    let mut session = opened();
    let mut map = |class: usize, rival: Option<usize>| {
        let request = json!({
            "type": "explain", "subject": {"picture": 0}, "class": class, "rival": rival,
            "maps": [{"method": "hirescam"}],
        });
        floats(&ask(&mut session, &request), "values 0").to_vec()
    };
    let (a, b, both) = (map(5, None), map(7, None), map(5, Some(7)));
    let difference: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
    assert!(far(&both, &difference) < 1e-5);
}

#[test]
fn thumbnails_are_there_for_every_layer_of_the_strip() {
    let mut session = opened();
    let state = ask(&mut session, &json!({"type": "state"}));
    let layers = state.header()["network"]["layers"].as_array().unwrap().len();
    assert!((10..=24).contains(&layers), "{layers} layers");
    let found = ask(
        &mut session,
        &json!({"type": "layers", "subject": {"picture": 0}, "map": {"method": "splitcam"}}),
    );
    assert_eq!(found.header()["layers"].as_array().unwrap().len(), layers);
    assert_eq!(bytes(&found, "thumbnails").len(), layers * 64 * 64 * 3);
}

/// What lies outside of the receptive field of a position leaves the activations there as they are; what lies inside does not.
#[test]
fn the_receptive_field_is_what_a_position_depends_on() {
    let mut session = opened();
    let map = |session: &mut Session, edits: Value| {
        let request = json!({
            "type": "explain", "subject": {"picture": 0, "edits": edits}, "class": 3,
            "maps": [{"method": "splitstream:stabiliser=none", "layer": "layer2.1.conv2"}],
        });
        let found = ask(session, &request);
        (floats(&found, "values 0").to_vec(), found.header()["maps"][0]["field"].clone())
    };
    let (before, field) = map(&mut session, json!([]));
    let side = (before.len() as f64).sqrt() as usize;
    let number = |axis: usize, at: usize| field[axis][at].as_i64().unwrap();
    let position = [3i64, 4];
    let range = |axis: usize| {
        let centre = position[axis] * number(axis, 0);
        [centre - number(axis, 1), centre + number(axis, 2) + 1]
    };
    let ([top, bottom], [left, right]) = (range(0), range(1));
    let at = position[0] as usize * side + position[1] as usize;
    let around = json!([
        {"becomes": "grey", "rectangle": [0, 0, 128, top.max(0)]},
        {"becomes": "grey", "rectangle": [0, bottom, 128, 128]},
        {"becomes": "grey", "rectangle": [0, 0, left.max(0), 128]},
        {"becomes": "grey", "rectangle": [right, 0, 128, 128]},
    ]);
    let (outside, _) = map(&mut session, around);
    assert!((outside[at] - before[at]).abs() <= 1e-5 * before[at].abs());
    assert_ne!(outside, before);
    let inside = json!([{"becomes": "grey", "rectangle": [left, top, right, bottom]}]);
    assert_ne!(map(&mut session, inside).0[at], before[at]);
}

#[test]
fn curves_begin_and_end_at_the_scores_of_whole_pictures() {
    let mut session = opened();
    let subject = json!({"picture": 0});
    let found = ask(
        &mut session,
        &json!({"type": "curves", "subject": subject, "class": 5, "map": {"method": "splitcam"}, "steps": 4}),
    );
    let mut probability = |edits: Value| {
        let subject = json!({"picture": 0, "edits": edits});
        let found =
            ask(&mut session, &json!({"type": "classes", "subject": subject, "count": 1, "and": [5]}));
        let classes = found.header()["classes"].as_array().unwrap().clone();
        classes.iter().find(|row| row["class"] == 5).unwrap()["probability"].as_f64().unwrap()
    };
    let whole = probability(json!([]));
    let grey = probability(json!([{"becomes": "grey", "rectangle": [0, 0, 128, 128]}]));
    let blurred = probability(json!([{"becomes": "blur", "rectangle": [0, 0, 128, 128]}]));
    let end = |curve: &str, at: usize| found.header()[curve]["scores"][at].as_f64().unwrap();
    for (curve, from, to) in [
        ("deletion", whole, grey),
        ("insertion", blurred, whole),
        ("randomDeletion", whole, grey),
        ("randomInsertion", blurred, whole),
    ] {
        assert!((end(curve, 0) - from).abs() < 1e-6, "{curve}: {} and {from}", end(curve, 0));
        assert!((end(curve, 4) - to).abs() < 1e-6, "{curve}: {} and {to}", end(curve, 4));
    }
}

#[test]
fn shares_are_those_of_a_whole_and_statements_hold() {
    let mut session = opened();
    let found = ask(
        &mut session,
        &json!({"type": "shares", "subject": {"picture": 0}, "alpha": 0.2, "map": {"method": "splitcam"}}),
    );
    let bars = found.header()["bars"].as_array().unwrap();
    let sum: f64 = bars.iter().map(|bar| bar["share"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    let found = ask(&mut session, &json!({"type": "verify", "subject": {"picture": 0}, "samples": 1}));
    for finding in found.header()["findings"].as_array().unwrap() {
        assert_eq!(finding["fails"], false, "{finding}");
    }
}

/// The compiled file, opened as any network, explains with the same map.
#[test]
fn the_compiled_file_returns_the_same_map() {
    let mut session = opened();
    let question = json!({"subject": {"picture": 0}, "class": 5, "alpha": 0.2});
    let with = |mut question: Value, more: Value| {
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        question
    };
    let explained = ask(
        &mut session,
        &with(question.clone(), json!({"type": "explain", "maps": [{"method": "splitcam"}]})),
    );
    let compiled =
        ask(&mut session, &with(question, json!({"type": "compile", "maps": [{"method": "splitcam"}]})));
    assert_eq!(compiled.header()["file"], "explained.onnx");
    let reopened = Model::options().read("explained.onnx", bytes(&compiled, "file")).unwrap();
    let program =
        monosplit::engine::Engine::compile(&monosplit::engine::Cpu::default(), reopened.graph()).unwrap();
    let sample = model().sample(&photograph(), &model().preprocess().unwrap()).unwrap();
    let outputs: Vec<Tensor> = program.run(&[sample.tensor]).unwrap();
    let map = outputs[2].to_f32();
    let expected: Vec<f64> = floats(&explained, "values 0").iter().map(|&v| f64::from(v)).collect();
    let found: Vec<f64> = map.iter().map(|&v| f64::from(v)).collect();
    assert!(relative_error(&found, &expected) < 1e-5);
}

#[test]
fn maps_are_written_in_three_formats() {
    let mut session = opened();
    for (format, start) in
        [("png", &b"\x89PNG"[..]), ("svg", b"<svg"), ("npy", b"\x93NUMPY"), ("picture", b"\x89PNG")]
    {
        let request = json!({
            "type": "download", "subject": {"picture": 0}, "map": {"method": "splitcam"}, "format": format,
        });
        let found = ask(&mut session, &request);
        let file = bytes(&found, "file");
        let text = String::from_utf8_lossy(&file[..file.len().min(200)]).into_owned();
        assert!(file.starts_with(start) || text.contains("<svg"), "{format}: {text}");
    }
}

#[test]
fn a_cancelled_request_says_so_and_the_session_goes_on() {
    let mut session = opened();
    let request =
        json!({"type": "explain", "subject": {"picture": 0}, "maps": [{"method": "splitcam"}]}).to_string();
    let cancelled = session.handle_until(request.as_bytes(), &[], Interruption::new(&|| true));
    assert_eq!(cancelled.header()["cancelled"], true);
    assert_eq!(session.handle(request.as_bytes(), &[]).error(), None);
}
