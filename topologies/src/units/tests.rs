use super::*;

#[test]
fn sizes_are_read_in_binary_and_decimal_units() {
    let cases = [
        ("0B", 0),
        ("1024B", 1024),
        ("64KiB", 65_536),
        ("256MiB", 268_435_456),
        ("1.5GiB", 1_610_612_736),
        ("2 TiB", 2_199_023_255_552),
        ("500MB", 500_000_000),
        ("16gib", 17_179_869_184),
        ("0.3B", 0),
    ];
    for (text, bytes) in cases {
        assert_eq!(text.parse::<ByteSize>().unwrap().bytes(), bytes, "{text}");
    }
}

#[test]
fn sizes_without_a_number_a_unit_or_in_excess_are_refused() {
    for text in [
        "",
        "512",
        "MiB",
        "1.2.3MiB",
        "-1GiB",
        "1GX",
        "99999999999TiB",
        "1.GiB",
        ".5GiB",
        "1e3MB",
        "1 GiB x",
    ] {
        assert!(text.parse::<ByteSize>().is_err(), "{text}");
    }
}

#[test]
fn sizes_and_spans_are_written_in_the_largest_whole_unit_and_read_back() {
    for (bytes, text) in [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (3 << 29, "1536MiB"),
        (1 << 40, "1TiB"),
    ] {
        assert_eq!(ByteSize(bytes).to_string(), text);
        assert_eq!(text.parse::<ByteSize>().unwrap().bytes(), bytes);
    }
    for (ms, text) in [
        (0, "0ms"),
        (999, "999ms"),
        (1_500, "1500ms"),
        (90_000, "90s"),
        (120_000, "2m"),
        (7_200_000, "2h"),
    ] {
        assert_eq!(Span { ms }.to_string(), text);
        assert_eq!(text.parse::<Span>().unwrap().ms, ms);
    }
}

#[test]
fn spans_need_a_unit() {
    for text in ["10", "", "s", "10S", "1d", "-1s", "1..5s"] {
        assert!(text.parse::<Span>().is_err(), "{text}");
    }
    assert_eq!("1.5s".parse::<Span>().unwrap().ms, 1_500);
}

#[test]
fn names_can_be_parts_of_paths_and_subjects() {
    for text in ["local", "epd-b300", "smollm2-135m", "n1.example", "0"] {
        assert_eq!(text.parse::<Name>().unwrap().as_str(), text);
    }
    for text in ["", "Local", "a b", "a/b", "-a", ".a", "a*", "ä", &"a".repeat(64)] {
        assert!(text.parse::<Name>().is_err(), "{text}");
    }
}

#[test]
fn digests_are_64_lower_case_digits() {
    let digest = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
    assert_eq!(digest.parse::<Sha256>().unwrap().as_str(), digest);
    for text in [&digest[1..], &digest.to_uppercase(), &digest.replace('b', "g")] {
        assert!(text.parse::<Sha256>().is_err(), "{text}");
    }
}

#[test]
fn a_model_source_is_a_name_a_path_a_script_or_simulated() {
    let name = |text: &str| ModelSource::Catalogue(text.parse().unwrap());
    let cases = [
        ("simulated", ModelSource::Simulated),
        (
            "scripted:./answers.yaml",
            ModelSource::Scripted("./answers.yaml".into()),
        ),
        ("./model", ModelSource::Path("./model".into())),
        ("../model", ModelSource::Path("../model".into())),
        ("/data/model", ModelSource::Path("/data/model".into())),
        ("model.gguf", ModelSource::Path("model.gguf".into())),
        ("smollm2-135m-instruct", name("smollm2-135m-instruct")),
    ];
    for (text, source) in cases {
        assert_eq!(text.parse::<ModelSource>().unwrap(), source);
        assert_eq!(source.to_string(), text);
    }
    for text in ["", "scripted:", "https://example.org/model.gguf", "Some Model"] {
        assert!(text.parse::<ModelSource>().is_err(), "{text}");
    }
}

#[test]
fn sizes_are_written_in_the_unit_that_leaves_the_smallest_number() {
    for text in ["900GB", "8TB", "256MiB", "2024GB", "1TiB", "1023B", "1500KB"] {
        assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
    }
}
