use super::*;

#[test]
fn base64_and_percent_forms_give_the_same_bytes() {
    for url in [
        "data:image/png;base64,AAEC/w==",
        "DATA:;BASE64,AAEC/w",
        "data:text/plain;charset=utf-8;base64,AAEC%2Fw%3D%3D",
        "data:image/png;base64,AA\r\nEC /w==",
        "data:,%00%01%02%FF",
        " \n data:,%00%01%02%FF",
    ] {
        assert!(is_data_url(url));
        assert_eq!(decode(url).unwrap(), [0, 1, 2, 255], "{url}");
    }
}

#[test]
fn what_is_no_data_is_refused() {
    for url in [
        "data:image/png;base64",
        "data:;base64,A",
        "data:;base64,A*==",
        "data:;base64,=AAA",
    ] {
        assert!(decode(url).is_err(), "{url}");
    }
    for text in ["", "dat", "http://data:", "päta:"] {
        assert!(!is_data_url(text), "{text}");
    }
}
